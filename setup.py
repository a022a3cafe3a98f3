"""Only the compiled kernels; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

NATIVE = Path("src/garfield/kernels/native")


class AbiWheel(bdist_wheel):
    """One wheel for every CPython from 3.10 on: the kernels use the limited API only."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return ("cp310", "abi3", platform) if python.startswith("cp") else (python, abi, platform)


setup(
    ext_modules=[
        Extension(
            "garfield.kernels._native",
            sources=[str(NATIVE / "module.c")],
            depends=[str(path) for path in NATIVE.glob("*.h")],
            # no -ffast-math: overflow and NaN are told apart from numbers here
            extra_compile_args=["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math"],
            py_limited_api=True,
        )
    ],
    cmdclass={"bdist_wheel": AbiWheel},
)
