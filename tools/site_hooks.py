"""What MkDocs asks while it builds the site: sections, links out of docs/, flags of commands.

A page that no section names is a how-to: whoever adds one to docs/ has nothing else to do. Links
to files of the repository become the files' names, as the site stands alone; one to a file that
is not there breaks a strict build, as any other does.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIRST = ({"Overview": "index.md"}, {"Tutorial": "tutorial.md"})
SECTIONS: dict[str, tuple[str, ...]] = {
    "How-to": (
        "own-model-and-data.md", "own-rule-and-attack.md", "any-shape.md", "sweeps.md",
        "reproduce.md", "plain-to-robust.md", "ddp.md", "tensorflow.md", "flower.md",
        "how-robust.md", "operating.md",
    ),
    "Systems": (
        "split.md", "fedgan.md", "elastic.md", "elastic-jobs.md", "elastic-local.md",
        "elastic-kubernetes.md",
    ),
    "Reference": (
        "reference/command-line.md", "reference/python.md", "reference/extending.md", "metrics.md",
    ),
    "Architecture": ("architecture.md", "threat-model.md", "benchmarks.md"),
}  # fmt: skip
"""The pages of each section in order, as far as they are there."""
COMMANDS = "<!-- the commands stand here -->"

_log = logging.getLogger("mkdocs.hooks.site")  # below mkdocs: a warning breaks a strict build
_LINK = re.compile(r"(!?)\[([^]]*)\]\((\.\./[^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Fill the sections."""
    config.nav = [*FIRST, *navigation(DOCS)]
    sys.path.insert(0, str(ROOT / "src"))
    return config


def navigation(docs: Path) -> list[dict[str, list[str]]]:
    """The sections, each with the pages that there are."""
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    there -= {page for entry in FIRST for page in entry.values()}
    named = {page for pages in SECTIONS.values() for page in pages}
    found = {title: [page for page in pages if page in there] for title, pages in SECTIONS.items()}
    found["How-to"] += sorted(there - named)
    return [{title: pages} for title, pages in found.items() if pages]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mend links that lead out of docs/, and put in the commands where they belong."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, commands())
    folder = (DOCS / page.file.src_uri).parent
    return _LINK.sub(lambda link: _mended(link, folder, page.file.src_uri), markdown)


def _mended(link: re.Match[str], folder: Path, page: str) -> str:
    _, text, target, _ = link.groups()
    path = Path(os.path.normpath(folder / target))
    if path.is_relative_to(DOCS):
        return link[0]
    if not path.exists() or not path.is_relative_to(ROOT):
        _log.warning("%s links to %s, which is not in the repository.", page, target)
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else target
    return f"{text} (`{name}`)" if name.strip("`") not in text else text


def commands() -> str:
    """Every command with its flags, as its help has them."""
    from garfield.cli.app import COMMANDS as KNOWN
    from garfield.cli.app import command_line

    line = command_line(KNOWN)
    texts = [line[name].generate_docs(heading_level=2, usage_name=_usage(name)) for name in KNOWN]
    return "\n\n".join(texts)


def _usage(name: str) -> str:
    return f"garfield {name}"
