"""What rules promise for arrays of jax, in a process of its own: its threads bear no fork.

python -m tests.jax_rows
"""

import sys
import tracemalloc

import pytest

import garfield
from garfield import GARS


def allocated(call):
    """The most memory that was held at once during a call, beyond what was held before."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main():
    import jax

    for dtype in ("float32", "float16", "bfloat16"):
        same_comes_back(jax, dtype)
    read_in_place(jax)
    traced_rows_refused(jax)
    sys.stdout.write("all kept\n")


def same_comes_back(jax, dtype):
    rows = [{"w": jax.numpy.full((2, 3), i, dtype), "n": jax.numpy.arange(2)} for i in range(5)]
    result = GARS["median"](rows, f=1)
    assert all(isinstance(leaf, jax.Array) for leaf in result.values())
    assert result["w"].dtype == dtype
    assert (result["w"] == rows[2]["w"]).all()
    assert (result["n"] == rows[0]["n"]).all()
    vectors = jax.numpy.stack([row["w"].reshape(-1) for row in rows])
    for given in (vectors, list(vectors)):
        plain = GARS["multi-krum"](given, f=1)
        assert isinstance(plain, jax.Array)
        assert plain.dtype == dtype


def read_in_place(jax):
    rows = [jax.random.normal(jax.random.key(i), (100_000,)) for i in range(5)]
    jax.block_until_ready(rows)
    assert allocated(lambda: GARS["median"](rows, f=1)) < 1.5 * 400_000


def traced_rows_refused(jax):
    for wrap in (lambda one: one, lambda one: [one], lambda one: {"w": one.reshape(1, 2)}):
        aggregate = jax.jit(lambda *rows, wrap=wrap: GARS["median"]([*map(wrap, rows)], f=1))
        with pytest.raises(garfield.InputError, match=r"jax\.jit .*pure_callback"):
            aggregate(*jax.numpy.ones((3, 2)))


if __name__ == "__main__":
    main()
