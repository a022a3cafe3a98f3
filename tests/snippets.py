"""The code in the pages of docs/, so that tests can run it."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page, language):
    """The blocks of one language in a page, in their order."""
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def run_python(page):
    """Run all Python of a page, one block after the other, as a reader who types it in would."""
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    return names
