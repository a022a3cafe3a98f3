"""`garfield rules` and `garfield attacks`: what there is, by name."""

from __future__ import annotations

from garfield.cli.shared import AsJson, console, print_json


def rules(*, as_json: AsJson = False) -> None:
    """List the aggregation rules: what they need, cost, and when to choose them."""
    from garfield.gars import GARS
    from garfield.preaggregation import STAGES
    from garfield.report.tables import bound, rules_table

    if as_json:
        print_json(
            [
                {
                    "name": rule.name,
                    "needs": bound(rule),
                    "cost": rule.cost,
                    "choose": rule.choose,
                    "robust": rule.robust,
                    "selects": rule.selects,
                    "masks": rule.masks,
                }
                for rule in GARS.values()
            ]
        )
        return
    out = console()
    out.print(rules_table(GARS.values()))
    out.print(f"In front of any of them, as in nnm+multi-krum: {', '.join(STAGES)}.")


def attacks(*, as_json: AsJson = False) -> None:
    """List the attacks: what the attacker knows, what it sends, and when."""
    from garfield.attacks import ATTACKS
    from garfield.nodes.plan import BEHAVIOURS
    from garfield.nodes.timing import TERMS
    from garfield.report.tables import aliases, attacks_table, formula

    words = {name: term.about for name, term in TERMS.items()}
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "knows": attack.knows,
                    "knows_rule": attack.knows_rule,
                    "kind": attack.kind,
                    "formula": formula(attack),
                    "aliases": aliases(attack, ATTACKS),
                }
                for name, attack in ATTACKS.items()
                if name == attack.name
            ]
            + [
                {"name": name, "knows": "own", "kind": kind, "formula": what, "aliases": []}
                for kind, named in (("node", BEHAVIOURS), ("time", words))
                for name, what in named.items()
            ]
        )
        return
    console().print(attacks_table(ATTACKS, BEHAVIOURS, words))
    console().print("What is said comes first, then when: reverse, withhold(from=server-1), late.")
