"""Run all benchmarks, or those named: ``python -m benchmarks aggregation --n 17 --quick``."""

from __future__ import annotations

import argparse
import os
import pkgutil
import platform
import sys
import time
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import benchmarks
from garfield import kernels
from garfield.core.errors import GarfieldError
from garfield.core.files import write_json
from garfield.report.console import console as console_of
from garfield.report.machine import processor
from garfield.report.summary import versions

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: list[str]) -> int:
    """Names come first, then options; an option that no named benchmark knows is refused."""
    known = _benchmarks()
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    for name in names:
        if name not in known:
            print(f"{name} is not a benchmark. There are: {', '.join(known)}.", file=sys.stderr)
            return 2
    if not names and {"-h", "--help"} & set(arguments):
        print(_overview(known))
        return 0
    chosen = {name: known[name] for name in names or known}
    given = _options(chosen, arguments[len(names) :])
    console = console_of(markup=True)
    for name, module in chosen.items():
        options = given[name]
        console.print(f"[bold]{name}[/]: {module.QUESTION}")
        machine, began = _machine(), time.perf_counter()
        try:
            results = module.run(options, console)
        except GarfieldError as problem:
            print(problem, file=sys.stderr)
            return 2
        path = _write(name, {"question": module.QUESTION, **machine, "results": results})
        took = time.perf_counter() - began
        console.print(f"{name} took {took:.0f} s. Numbers: {os.path.relpath(path)}\n")
    return 0


def _overview(known: dict[str, ModuleType]) -> str:
    """What there is to be run, a line each."""
    width = max(map(len, known))
    return "\n".join(
        [
            "usage: python -m benchmarks [names] [options]",
            "",
            "Runs the benchmarks that are named, or all. Options of one: NAME --help.",
            "",
            *(f"  {name:{width}}  {module.QUESTION}" for name, module in known.items()),
        ]
    )


def _benchmarks() -> dict[str, ModuleType]:
    """The modules of this folder that ask a question."""
    names = [found.name for found in pkgutil.iter_modules(benchmarks.__path__)]
    modules = {n: import_module(f"benchmarks.{n}") for n in names if n != "__main__"}
    return {name: module for name, module in modules.items() if hasattr(module, "QUESTION")}


def _options(chosen: dict[str, ModuleType], words: list[str]) -> dict[str, argparse.Namespace]:
    """Of each benchmark; two may give the same name to different things."""
    found = {name: _parser(name, module).parse_known_args(words) for name, module in chosen.items()}
    strange = [set(rest) for _, rest in found.values()]
    if unknown := set.intersection(*strange):
        name, module = next(iter(chosen.items()))
        _parser(name, module).error(f"no such option here: {' '.join(sorted(unknown))}")
    return {name: options for name, (options, _) in found.items()}


def _parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", usage=f"%(prog)s {name} [options]", allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats")
    module.add_options(parser.add_argument_group(name, module.QUESTION))
    return parser


def _machine() -> dict[str, Any]:
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": processor(),
        "isa": kernels.isa(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions(("garfield", "numpy", "torch")),
    }


def _write(name: str, content: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    write_json(path, content)
    return path


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
