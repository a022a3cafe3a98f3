"""LiuBei's acceptance tests: may a worker believe the one model that it pulled?"""

from garfield.filters.distance import farthest
from garfield.filters.lipschitz import Coefficients, coefficient
from garfield.filters.smoothness import period, smoothness

__all__ = ["Coefficients", "coefficient", "farthest", "period", "smoothness"]
