"""Do tests notice? Change the package in one place at a time, and see which tests fail.

    make mutants IN=src/garfield/filters              all changes to these files
    make mutants IN=src/garfield/nodes SAMPLE=60      sixty of them, drawn by a seed (SEED=7)
    python -m tools.mutants src/garfield/gars/krum.py --json krum.json

Each change (`tools/mutations.py`) is made in a copy of the package and run against the tests
that call the changed function (`tools/mutant_runner.py`), the most specific first, until one
fails. A change that no test notices is printed: write the test, or say in
`tools/equivalent_mutants.toml` why none can.

What was found is kept in `.mutants/`: an interrupted command goes on where it was. Which tests
call what is found out once for every file of tests, which takes a few minutes; `--remap` does it
again, for code that moved a lot.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tools.mutant_runner import PATIENCE, ROOT, TIMED_OUT, Slot
from tools.mutations import Mutation, mutations

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = ROOT / "src" / "garfield"
KEPT = ROOT / ".mutants"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.toml"
TESTS = ("tests/unit", "tests/contracts", "tests/papers")
MARKED = "not slow and not heavy"
FIRST = 30
"""So many of the most specific tests are run before all the others are."""
START_S = 60.0
_NO_TESTS = 5  # pytest's code for it


@dataclass(frozen=True)
class Mutant:
    """A change to a file of the package, and what became of it."""

    path: str
    """The file, from the package on."""
    mutation: Mutation
    source: bytes = field(repr=False)
    """The file as it was when we began: somebody may work on it meanwhile."""
    was: str
    now: str
    """The changed lines, before and after, without their margins."""
    state: str = "open"
    """caught, survived, or untested; equivalent if it is known to change nothing."""
    by: str = ""
    """The test that failed, or why no test can."""

    @property
    def key(self) -> str:
        """The same for the same change in the same file, as long as that stays as it is."""
        place = (self.path, self.mutation.start, self.mutation.end, self.mutation.text)
        return hashlib.sha256(repr((self.source, *place)).encode()).hexdigest()[:20]

    def diff(self) -> str:
        """The change as a difference, with its place."""
        where = f"src/garfield/{self.path}:{self.mutation.line}  ({self.mutation.kind})"
        removed = "".join(f"\n  - {line}" for line in self.was.splitlines())
        added = "".join(f"\n  + {line}" for line in self.now.splitlines())
        return f"{where}{removed}{added}"

    def as_dict(self) -> dict[str, Any]:
        about = {"file": self.path, "line": self.mutation.line, "kind": self.mutation.kind}
        return {**about, "was": self.was, "now": self.now, "state": self.state, "by": self.by}


# -- which changes ------------------------------------------------------------------------------


def mutants_of(files: Iterable[Path]) -> list[Mutant]:
    """All changes to these files, known equivalents marked."""
    known = read_equivalent(EQUIVALENT)
    found = []
    for file in files:
        source, path = file.read_bytes(), file.relative_to(PACKAGE).as_posix()
        for mutation in mutations(source):
            was, now = changed_lines(source, mutation)
            if why := known.get((path, was, now)):
                found.append(Mutant(path, mutation, source, was, now, "equivalent", why))
            elif same_program(source, mutation):
                continue
            else:
                found.append(Mutant(path, mutation, source, was, now))
    return found


def changed_lines(source: bytes, mutation: Mutation) -> tuple[str, str]:
    """The lines that a change touches, before and after."""
    begin = source.rfind(b"\n", 0, mutation.start) + 1
    end = source.find(b"\n", mutation.end)
    end = len(source) if end < 0 else end
    after = source[begin : mutation.start] + mutation.text.encode() + source[mutation.end : end]
    return _without_margins(source[begin:end].decode()), _without_margins(after.decode())


def _without_margins(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def same_program(source: bytes, mutation: Mutation) -> bool:
    """Whether the change leaves the same tree: of brackets, say."""
    return ast.dump(ast.parse(source)) == ast.dump(ast.parse(mutation.applied(source)))


def read_equivalent(path: Path) -> dict[tuple[str, str, str], str]:
    """Why some changes change nothing, by file and lines."""
    listed = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    return {(each["file"], each["was"], each["now"]): each["why"] for each in listed}


def sample(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them, in the order of their places; all if there are no more, or count is 0."""
    if not 0 < count < len(found):
        return list(found)
    chosen = random.Random(seed).sample(range(len(found)), count)
    return [found[i] for i in sorted(chosen)]


# -- which tests --------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownTests:
    """Which functions each test calls, and how long it takes."""

    tests: dict[str, dict[str, Any]]
    """By name: seconds, functions, and the hash of its file."""

    most_s: float = inf
    """How long the tests of one change may take together, at their usual pace."""

    def noticing(self, mutant: Mutant) -> dict[str, float]:
        """Tests that run the changed code, the most specific first, with their seconds."""
        named = self._calling(mutant)
        order = sorted(named, key=lambda name: (self._breadth(name), name))
        seconds = [self.tests[name]["seconds"] for name in order]
        within = sum(total <= self.most_s for total in accumulate(seconds))
        return dict(zip(order[: max(1, within)], seconds, strict=False))

    def fingerprint(self, names: Iterable[str]) -> str:
        """Another one for other tests, also where they have the same names."""
        told = sorted((name, self.tests[name].get("hash", "")) for name in names)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:20]

    def _breadth(self, name: str) -> float:
        test = self.tests[name]
        return float((0.05 + test["seconds"]) * (1 + len(test["functions"])))

    def _calling(self, mutant: Mutant) -> list[str]:
        path, function = mutant.path, mutant.mutation.function
        if function:
            wanted = {f"{path}:{function}", f"{path}:{function.rpartition('.')[2]}"}
            return [name for name, test in self.tests.items() if wanted & set(test["functions"])]
        folder = path.rpartition("/")[0]
        for beginning in (f"{path}:", f"{folder}/"):  # code outside of functions runs on import
            found = [
                name for name, test in self.tests.items()
                if any(each.startswith(beginning) for each in test["functions"])
            ]  # fmt: skip
            if found:
                return found
        return []


def files_in(path: Path, pattern: str) -> list[Path]:
    """The files in a folder, or the one that the path names itself."""
    return [path] if path.is_file() else sorted(path.rglob(pattern))


def read_map(
    slots: SimpleQueue[Slot], jobs: int, folders: Sequence[str], remap: bool
) -> KnownTests:
    """The map of these tests: from the last time, where their files are as they were."""
    kept = KEPT / "map.json"
    before: dict[str, Any] = {}
    if kept.is_file() and not remap:
        before = json.loads(kept.read_text())
    files = [
        path.relative_to(ROOT).as_posix()
        for given in folders
        for path in files_in(ROOT / given, "test_*.py")
    ]
    hashes = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in files}
    missing = [name for name in files if before.get(name, {}).get("hash") != hashes[name]]

    def find(name: str) -> None:
        slot = slots.get()
        try:
            request = {"files": [name], "options": ["-m", MARKED], "timeout_s": 900}
            answer = slot.ask(request)
        finally:
            slots.put(slot)
        tests = answer.get("tests", {})
        print(f"{name}: {len(tests)} tests", file=sys.stderr)
        before[name] = {"hash": hashes[name], "tests": tests}

    with ThreadPoolExecutor(jobs) as threads:
        for _ in threads.map(find, sorted(missing)):
            kept.write_text(json.dumps(dict(before)))  # a copy: threads go on
    return KnownTests({
        test: {**about, "hash": hashes[name]}
        for name in files
        for test, about in before[name]["tests"].items()
    })  # fmt: skip


def without_failing(slot: Slot, known: KnownTests, chosen: Sequence[Mutant]) -> KnownTests:
    """The map without tests that fail on the package as it is: they would catch everything."""
    wanted: dict[str, float] = {}
    for mutant in chosen:
        wanted |= dict(list(known.noticing(mutant).items())[:FIRST])
    limit_s = START_S + PATIENCE * sum(wanted.values())
    answer = slot.ask({"tests": wanted, "all": True, "timeout_s": limit_s})
    if answer["code"] not in (0, 1, _NO_TESTS):
        raise SystemExit(f"The tests do not run on the package as it is: {answer}.")
    for name in answer["all_failed"]:
        print(f"{name} fails without any change, and is left out.", file=sys.stderr)
    failing = set(answer["all_failed"])
    return replace(known, tests={n: t for n, t in known.tests.items() if n not in failing})


# -- what becomes of them -----------------------------------------------------------------------


def judge(slot: Slot, mutant: Mutant, tests: dict[str, float]) -> Mutant:
    """Run the tests until one fails: first the most specific, then all."""
    if not tests:
        return replace(mutant, state="untested")
    source = mutant.mutation.applied(mutant.source)
    names = list(tests)
    for part in (names[:FIRST], names[FIRST:]):
        if part:
            chosen = {name: tests[name] for name in part}
            limit_s = START_S + PATIENCE * sum(chosen.values())
            request = {"tests": chosen, "timeout_s": limit_s}
            answer = slot.ask_with(mutant.path, source, request)
            if answer["code"] not in (0, _NO_TESTS):
                slow = "took too long" if answer["code"] == TIMED_OUT else "could not be imported"
                return replace(mutant, state="caught", by=answer["failed"] or slow)
    return replace(mutant, state="survived")


def judged(
    slots: SimpleQueue[Slot], jobs: int, chosen: Sequence[Mutant], known: KnownTests, fresh: bool
) -> Iterator[Mutant]:
    """What becomes of each; what was found before is not looked for again.

    One that survived is tried again when the tests for it are others, or have changed.
    """
    record = KEPT / "results.jsonl"
    lines = record.read_text().splitlines() if record.is_file() and not fresh else []
    before = {each["key"]: each for each in map(json.loads, lines)}

    def find(mutant: Mutant) -> Mutant:
        tests = known.noticing(mutant)
        against = known.fingerprint(tests)
        old = before.get(mutant.key)
        if old and (old["state"] == "caught" or old["against"] == against):
            return replace(mutant, state=old["state"], by=old["by"])
        slot = slots.get()
        try:
            found = judge(slot, mutant, tests)
        finally:
            slots.put(slot)
        with record.open("a") as file:
            about = {"key": mutant.key, "against": against, **found.as_dict()}
            file.write(json.dumps(about) + "\n")
        return found

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(find, chosen)


def summary(found: Sequence[Mutant]) -> str:
    """How many were caught, of those that could be."""
    states = [each.state for each in found]
    equivalent, tried = states.count("equivalent"), len(states) - states.count("equivalent")
    share = f" ({100 * states.count('caught') / tried:.0f} %)" if tried else ""
    untested = states.count("untested")
    return (
        f"caught {states.count('caught')} of {tried}{share}; {states.count('survived')} survived, "
        f"{untested} in code that no test here runs; {equivalent} known to change nothing"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; 1 if something survived."""
    options = _parser().parse_args(words)
    files = [file for path in options.paths for file in files_in(Path(path).resolve(), "*.py")]
    chosen = sample(mutants_of(files), options.sample, options.seed)
    if options.list:
        print("\n".join(each.diff() for each in chosen))
        return 0
    KEPT.mkdir(exist_ok=True)
    found, open_ones = [], [each for each in chosen if each.state == "open"]
    with ExitStack() as stack:
        slots: SimpleQueue[Slot] = SimpleQueue()
        for number in range(options.jobs):
            slots.put(stack.enter_context(Slot(number)))
        known = read_map(slots, options.jobs, options.tests, options.remap)
        known = replace(known, most_s=options.most_s or inf)
        if open_ones:
            slot = slots.get()
            known = without_failing(slot, known, open_ones)
            slots.put(slot)
        for each in judged(slots, options.jobs, open_ones, known, options.fresh):
            found.append(each)
            mark = {"caught": ".", "survived": "S", "untested": "U"}[each.state]
            print(mark, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for each in found:
        if each.state != "caught":
            print(f"{each.state}: {each.diff()}\n")
    found += [each for each in chosen if each.state == "equivalent"]
    print(summary(found))
    if options.json:
        Path(options.json).write_text(json.dumps([each.as_dict() for each in found], indent=1))
    return int(any(each.state in ("survived", "untested") for each in found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("paths", nargs="+", help="files or folders of the package")
    parser.add_argument("--sample", type=int, default=0, help="so many changes; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests")
    parser.add_argument(
        "--most-s", type=float, default=60.0,
        help="seconds of tests that one change is held to, the most specific; 0 for all",
    )  # fmt: skip
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders or files of tests")
    parser.add_argument("--json", metavar="FILE", help="write all that was found there")
    parser.add_argument("--list", action="store_true", help="print the changes, and run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--remap", action="store_true", help="find out again what tests call")
    return parser


if __name__ == "__main__":
    sys.exit(main())
