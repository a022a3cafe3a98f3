"""Ctrl-C and SIGTERM, taken alike: they break off what may be broken off, and nothing else.

    with Interrupts() as interrupts:
        with interrupts.allowed():      # the first raises KeyboardInterrupt here, so does a second
            run()
        write_summary()                 # they wait; any further ones are noted only
    if interrupts.heard: ...

So what must be whole is written whole, however often and late somebody presses Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RAISED_AT_MOST = 2
"""The first asks to end in good order, the second at once."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """What was pressed so far. Use as a context, in the main thread; elsewhere it hears nothing."""

    def __init__(self) -> None:
        self.heard = 0
        self._raised, self._allowed = 0, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let them raise KeyboardInterrupt here, also one that came before."""
        self._allowed = True
        try:
            if self.heard > self._raised:
                self._raise()
            yield
        finally:
            self._allowed = False

    def _hear(self, *_: object) -> None:
        self.heard += 1
        if self._allowed:
            self._raise()

    def _raise(self) -> None:
        self._raised += 1
        if self._raised >= RAISED_AT_MOST:
            self._allowed = False
        raise KeyboardInterrupt


def raise_once() -> None:
    """From now on the first of both raises KeyboardInterrupt, and the others do nothing.

    For a whole program: nothing disturbs it while it says that it was interrupted, and ends.
    """

    def interrupt(*_: object) -> None:
        ignore()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def ignore() -> None:
    """Let nothing disturb the end of this program any more."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
