"""The compiled kernels, recipes for the wheel, its page; everything else is in pyproject.toml."""

import re
import runpy
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

KERNELS = Path("src/garfield/kernels")
NATIVE = KERNELS / "native"
SORTED_IN_REGISTERS = range(2, 33)  # rows; beyond that, registers spill and nothing is gained
FILES_AT: str | None = None
"""The address, with a slash at its end, under which this tree's files are served as they are: set
it where there is one, and the page on PyPI has its pictures."""


def sorters() -> str:
    """Batcher's networks as macros, for native/in_registers.h to unroll."""
    batcher = runpy.run_path(str(KERNELS / "networks.py"))["batcher"]
    lines = ["/* Written by setup.py from kernels/networks.py. */"]
    for n in SORTED_IN_REGISTERS:
        lines.append(f"#define ROWS_{n}(M) " + " ".join(f"M({i})" for i in range(n)))
        lines.append(f"#define STEPS_{n} " + " ".join(f"X({i}, {j})" for i, j in batcher(n)))
    every = " ".join(f"M({n}, {(n - 1) // 2}, {n // 2})" for n in SORTED_IN_REGISTERS)
    return "\n".join([*lines, f"#define EVERY_SORTER(M) {every}", ""])


class WithSorters(build_ext):
    def run(self) -> None:
        (NATIVE / "sorters.h").write_text(sorters())
        super().run()


def page(readme: str, files_at: str | None) -> str:
    """The README for a page that has none of our files beside it.

    Where the files are served, pictures and links lead there; where they are not, pictures are
    left out with what is said below them, and links become their texts.
    """
    if files_at is None:
        readme = re.sub(r"^!\[[^]]*\]\((?!http)[^)]+\)\n+(?:\*[^*]+\*\n+)?", "", readme, flags=re.M)
        return re.sub(r"(?<!!)\[([^]]+)\]\((?!http|#)[^)]+\)", r"\1", readme)
    return re.sub(r"(!?\[[^]]*\]\()(?!http|#)([^)]+\))", rf"\1{files_at}\2", readme)


class WithRecipes(build_py):
    """`garfield reproduce` finds recipes in a clone, or else beside the installed modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            place = Path(self.build_lib) / "garfield" / "recipes"
            place.mkdir(parents=True, exist_ok=True)
            for recipe in sorted(Path("recipes").glob("*.toml")):
                shutil.copyfile(recipe, place / recipe.name)


class AbiWheel(bdist_wheel):
    """One wheel for every CPython from 3.10 on: the kernels use the limited API only."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return ("cp310", "abi3", platform) if python.startswith("cp") else (python, abi, platform)


setup(
    long_description=page(Path("README.md").read_text(encoding="utf-8"), FILES_AT),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "garfield.kernels._native",
            sources=[str(path) for path in sorted(NATIVE.glob("*.c"))],
            depends=[str(path) for path in NATIVE.glob("*.h")],
            # no -ffast-math: overflow and NaN are told apart from numbers here
            extra_compile_args=[
                "-O3",
                "-g0",
                "-std=gnu11",
                "-fno-math-errno",
                "-fno-trapping-math",
            ],
            py_limited_api=True,
        )
    ],
    cmdclass={"bdist_wheel": AbiWheel, "build_ext": WithSorters, "build_py": WithRecipes},
)
