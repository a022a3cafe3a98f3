"""Ctrl-C and SIGTERM, taken alike: they break off what may be broken off, and nothing else.

    with Interrupts() as interrupts:
        with interrupts.allowed():      # the first raises KeyboardInterrupt here, so does a second
            run()
        write_summary()                 # they wait; any further ones are noted only
    if interrupts.heard: ...

So what must be whole is written whole, however often and late somebody presses Ctrl-C.

While an object is destroyed, Python drops what is raised and only reports it: a training whose
Ctrl-C came at that moment went on. So what was dropped is sent once more, a moment later.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

RAISED_AT_MOST = 2
"""The first asks to end in good order, the second at once."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SOON_S = 0.05  # by then the destructor that was called meanwhile is over


class Interrupts:
    """What was pressed so far. Use as a context, in the main thread; elsewhere it hears nothing."""

    def __init__(self) -> None:
        self.heard = 0
        self._raised, self._inside = 0, False
        self._before: dict[int, Any] = {}
        self._report = sys.unraisablehook

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                    self._before[number] = signal.signal(number, self._hear)
        self._report, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._report
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let them raise KeyboardInterrupt here, also one that came before."""
        self._inside = True
        try:
            if self.heard > self._raised:
                self._raise()
            yield
        finally:
            self._inside = False

    def _hear(self, *_: object) -> None:
        self.heard += 1
        if self._inside and self._raised < RAISED_AT_MOST:
            self._raise()

    def _raise(self) -> None:
        self._raised += 1
        raise KeyboardInterrupt

    def _dropped(self, unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            self._report(unraisable)
            return
        self.heard, self._raised = self.heard - 1, self._raised - 1
        send_soon(signal.SIGINT)


def raise_once() -> None:
    """From now on the first of both raises KeyboardInterrupt, and the others do nothing.

    For a whole program: nothing disturbs it while it says that it was interrupted, and ends.
    """
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(*_: object) -> None:
        ignore()
        raise KeyboardInterrupt

    raise_again_if_dropped(KeyboardInterrupt, heeded, interrupt)


def raise_again_if_dropped(
    kind: type[BaseException], numbers: Sequence[int], handler: Callable[..., None]
) -> None:
    """Handle these signals so, for a whole program, until what the handler raises is heard.

    The handler may ignore signals from then on: they are handled again if it was not.
    """
    report = sys.unraisablehook

    def handle() -> None:
        for number in numbers:
            signal.signal(number, handler)

    def dropped(unraisable: Any) -> None:
        if unraisable.exc_type is not kind:
            report(unraisable)
            return
        handle()
        send_soon(numbers[0])

    sys.unraisablehook = dropped
    handle()


def send_soon(number: int) -> None:
    """Send this process a signal, once what goes on now is over."""
    again = threading.Timer(_SOON_S, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def ignore() -> None:
    """Let nothing disturb the end of this program any more."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
