"""How robust a rule is, as one number: κ of (f, κ)-robustness, searched for and beside theory.

    |R(x) − mean_S|² <= κ · (1/|S|) Σ_{i ∈ S} |x_i − mean_S|²

for all n rows x and every set S of n − f of them: whoever is honest, and whatever the others
say, the answer R(x) stays within √κ deviations of the honest mean. The smaller κ, the better.
`search` looks for rows that make κ large, `theory` holds what is proven.

Allouah, Farhadkhani, Guerraoui, Gupta, Pinot and Stephan, AISTATS 2023 ("Fixing by mixing").
"""

from garfield.gars.robustness.search import Kappa, worst_kappa
from garfield.gars.robustness.theory import Bound, least_kappa, proven_kappa

__all__ = ["Bound", "Kappa", "least_kappa", "proven_kappa", "worst_kappa"]
