"""Search for a break of the invariants, or look at one.

python -m tests.adversary search --seconds 600 --seed 7 --app msmw
python -m tests.adversary replay '{"app": "msmw", …}'    or the file that search has written
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.adversary.case import Case
from tests.adversary.draw import Cell, cells
from tests.adversary.invariants import broken
from tests.adversary.shrink import breaks, invariant, shrunk

CHUNK = 4
"""Cases that a process tries before it reports."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    search = commands.add_parser("search", help="try cases until the time is over")
    search.add_argument("--seconds", type=float, default=600)
    search.add_argument("--seed", type=int, default=0, help="where to begin")
    search.add_argument("--app", default="", help="only cells whose name has this in it")
    search.add_argument("--processes", type=int, default=2)
    search.add_argument("--out", type=Path, default=Path("results/adversary"))
    search.add_argument("--keep-going", action="store_true", help="do not stop at the first break")
    replay = commands.add_parser("replay", help="play one case, and say what does not hold")
    replay.add_argument("case", help="its JSON, or a file")
    replay.add_argument("--shrink", action="store_true", help="make it as small as it goes")
    given = parser.parse_args()
    return _replay(given) if given.command == "replay" else _search(given)


def _replay(given: argparse.Namespace) -> int:
    text = given.case if given.case.startswith("{") else Path(given.case).read_text()
    case = Case.from_json(text)
    found = tried(case)
    if found and given.shrink:
        case = _smallest(case, found[0])
        found = tried(case)
        _say(case.to_json())
    for sentence in found:
        _say(sentence)
    if not found:
        _say("Everything holds.")
    return 1 if found else 0


def tried(case: Case) -> list[str]:
    """What does not hold; an exception that no node should raise is one of it."""
    try:
        return broken(case)
    except Exception as problem:  # the search goes on, and shows it
        return [f"0 error: {type(problem).__name__}: {problem}"]


def _search(given: argparse.Namespace) -> int:
    chosen = [cell for cell in cells() if given.app in cell.name]
    if not chosen:
        _say(f"No cell has {given.app!r} in its name.")
        return 2
    started, runs, seen = time.monotonic(), 0, Counter[tuple[str, str]]()
    told = started
    with ProcessPoolExecutor(given.processes) as pool:
        for number, found in _found(pool, chosen, given):
            runs += number
            for cell, case, sentences in found:
                first = cell, invariant(sentences[0])
                seen[first] += 1
                if seen[first] == 1:
                    _show(case, cell, sentences[0], runs, given.out)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                _say(_progress(runs, told - started, seen))
            if seen and not given.keep_going:
                break
    _say(_progress(runs, time.monotonic() - started, seen))
    for (cell, which), times in sorted(seen.items()):
        _say(f"  {times} × invariant {which} in {cell}")
    return 1 if seen else 0


def _progress(runs: int, took_s: float, seen: Counter[tuple[str, str]]) -> str:
    return f"{runs} runs in {took_s:.0f} s ({runs / took_s:.1f}/s), {sum(seen.values())} breaks"


Found = list[tuple[str, Case, list[str]]]


def _found(
    pool: ProcessPoolExecutor, chosen: Sequence[Cell], given: argparse.Namespace
) -> Iterator[tuple[int, Found]]:
    """What chunks of cases have found, until the time is over; all cells before the next seed."""
    until = time.monotonic() + given.seconds
    tasks = _tasks(len(chosen), given.seed)
    running = [pool.submit(_chunk, given.app, next(tasks)) for _ in range(2 * given.processes)]
    while running:
        yield running.pop(0).result()
        if time.monotonic() < until:
            running.append(pool.submit(_chunk, given.app, next(tasks)))


def _tasks(count: int, seed: int) -> Iterator[list[tuple[int, int]]]:
    place = 0
    while True:
        yield [((place + i) % count, seed + (place + i) // count) for i in range(CHUNK)]
        place += CHUNK


def _chunk(app: str, task: list[tuple[int, int]]) -> tuple[int, Found]:
    chosen = [cell for cell in cells() if app in cell.name]
    found: Found = []
    for place, seed in task:
        case = chosen[place].draw(seed)
        sentences = tried(case)
        if sentences:
            found.append((chosen[place].name, case, sentences))
    return len(task), found


def _show(case: Case, cell: str, sentence: str, runs: int, out: Path) -> None:
    _say(f"\nBroken after {runs} runs, {cell}, seed {case.seed}:\n  {sentence}\nShrinking …")
    smallest = _smallest(case, sentence)
    out.mkdir(parents=True, exist_ok=True)
    name = f"{invariant(sentence)}-{cell}-{case.seed}".replace(" ", "-").replace("/", "of")
    file = out / f"{name}.json"
    file.write_text(smallest.to_json() + "\n")
    _say(f"  {tried(smallest)[0]}\n  {smallest.to_json()}\nReplay it with")
    _say(f"  python -m tests.adversary replay {file}")


def _smallest(case: Case, sentence: str) -> Case:
    number = invariant(sentence)
    if number == "0":
        return shrunk(case, lambda each: bool(tried(each)))
    return shrunk(case, lambda each: breaks(each, number))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
