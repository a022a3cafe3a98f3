"""Fuzz the parsers of everything that arrives, or try one input again.

python -m tests.fuzz run --seconds 300 --target "wire header"
python -m tests.fuzz replay "wire header" results/fuzz/crash-…

With atheris installed (pip install atheris) coverage guides the search; otherwise hypothesis
draws inputs by rising seeds. What breaks a promise is written to results/fuzz.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.target import Target, targets

A_ROUND = 1000
"""Examples that hypothesis draws from one seed."""

UNHURRIED: dict[str, Any] = {
    "deadline": None, "database": None, "derandomize": False,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    run = commands.add_parser("run", help="fuzz until the time is over")
    run.add_argument("--seconds", type=float, default=60, help="for each target")
    run.add_argument("--seed", type=int, default=0, help="where to begin")
    run.add_argument("--target", default="", help="only targets whose name has this in it")
    run.add_argument("--engine", choices=["atheris", "hypothesis"], default=_best_engine())
    run.add_argument("--out", type=Path, default=Path("results/fuzz"))
    run.add_argument("--here", metavar="TARGET", help="this one alone, and in this process")
    replay = commands.add_parser("replay", help="try one input, and show what it breaks")
    replay.add_argument("target")
    replay.add_argument("input", type=Path)
    words = parser.parse_args()
    if words.command == "run":
        fuzz = _by_atheris if words.engine == "atheris" else _by_hypothesis
        return _each_in_a_process(words) if words.here is None else fuzz(words)
    targets()[words.target].check(words.input.read_bytes())
    _say("It holds.")
    return 0


def _best_engine() -> str:
    return "atheris" if importlib.util.find_spec("atheris") else "hypothesis"


def _each_in_a_process(words: argparse.Namespace) -> int:
    """Fuzz target by target: libFuzzer ends its process, and a parser may crash it."""
    chosen = [name for name in targets() if words.target in name]
    if not chosen:
        _say(f"No target has {words.target!r} in its name. There are: {', '.join(targets())}.")
        return 2
    words.out.mkdir(parents=True, exist_ok=True)
    broken = []
    for name in chosen:
        _say(f"{name}, by {words.engine}, {words.seconds:g} s:")
        command = [sys.executable, "-m", "tests.fuzz", *sys.argv[1:], "--here", name]
        with tempfile.TemporaryDirectory() as scratch:  # that process cannot clean up
            environment = os.environ | {"TMPDIR": scratch}
            if subprocess.run(command, check=False, env=environment).returncode:
                broken.append(name)
    _say(f"{len(chosen)} targets, broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def _by_hypothesis(words: argparse.Namespace) -> int:
    """Draw rounds of examples by rising seeds; the smallest that breaks a promise is kept."""
    target = targets()[words.here]
    until, tried, number = time.monotonic() + words.seconds, 0, words.seed
    while time.monotonic() < until:
        last = b""

        @seed(number)
        @settings(max_examples=A_ROUND, phases=[Phase.generate, Phase.shrink], **UNHURRIED)
        @given(target.inputs)
        def check(data: bytes) -> None:
            nonlocal tried, last
            tried, last = tried + 1, data
            target.check(data)

        try:
            check()
        except Exception:
            _keep(target, last, words.out)
            raise
        number += 1
    _say(f"  {tried} inputs, seeds {words.seed} to {number - 1}")
    return 0


def _by_atheris(words: argparse.Namespace) -> int:
    """Hand the process to libFuzzer, which writes what it finds, and ends it."""
    import atheris

    with atheris.instrument_imports(include=["garfield", "tomllib"]):
        target = targets()[words.here]
    check = target.check
    if target.drawn:
        drawing = settings(**UNHURRIED)(given(target.inputs)(lambda data: target.check(data)))
        check = drawing.hypothesis.fuzz_one_input
    corpus = Path(tempfile.mkdtemp())
    for data in () if target.drawn else target.begin_from:
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    limits = [f"-max_total_time={words.seconds:.0f}", f"-seed={words.seed + 1}"]
    limits += [f"-artifact_prefix={words.out}/", "-print_final_stats=1", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], *limits, "-verbosity=0", str(corpus)], check)
    atheris.Fuzz()
    return 0


def _keep(target: Target, data: bytes, out: Path) -> None:
    file = out / f"{target.name.replace(' ', '-')}-{hashlib.sha256(data).hexdigest()[:12]}"
    file.write_bytes(data)
    _say(f"  broken by {data!r}\n  python -m tests.fuzz replay {target.name!r} {file}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
