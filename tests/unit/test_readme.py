"""The README's tables list what there is; its text becomes the page on PyPI."""

import re
import runpy
from pathlib import Path

from garfield import ATTACKS, GARS
from garfield.preaggregation import STAGES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def section(title):
    return re.split(r"^## ", README.partition(f"## {title}\n")[2], flags=re.M)[0]


def named(text):
    return set(re.findall(r"`([a-z][a-z-]+)`", text))


def test_every_rule_stands_in_the_table_with_its_bound():
    rows = {
        row.split("`")[1]: row for row in section("Rules").splitlines() if row.startswith("| `")
    }
    assert set(rows) == set(GARS)
    for name, rule in GARS.items():
        if rule.robust:
            slope, base = re.search(r"n ≥ (\d)f\+(\d)", rows[name]).groups()
            assert rule.needs(5) == 5 * int(slope) + int(base)


def test_every_pre_aggregation_is_named():
    assert set(STAGES) <= named(section("Rules"))


def test_every_attack_is_named():
    listed = named(section("Attacks"))
    plain = {name for name in ATTACKS if not name.startswith("optimal-")}
    assert plain - {"inner-product-manipulation"} <= listed


def test_the_page_on_pypi_shows_pictures_from_where_the_files_are_served(monkeypatch):
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    page = runpy.run_path(str(ROOT / "setup.py"))["page"]
    readme = "# It\n\n![Curves](docs/a.png)\n\n*They fall.*\n\nSee [this](docs/b.md), [c](#c).\n"
    assert page(readme, None) == "# It\n\nSee this, [c](#c).\n"
    served = page(readme, "https://example.org/files/")
    assert "![Curves](https://example.org/files/docs/a.png)" in served
    assert "[this](https://example.org/files/docs/b.md), [c](#c)" in served
