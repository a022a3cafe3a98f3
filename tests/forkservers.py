"""The process that others are forked from, for tests."""

from multiprocessing import forkserver


def with_a_forkserver_of_its_own() -> None:
    """Let processes share what theirs has loaded, and not what other tests' has.

    A forkserver that an earlier test started lacks the modules, and each process would load them.
    """
    forkserver._forkserver._stop()  # what the standard library's own tests use
