"""Work done ahead of its use: several pieces at once, handed over in order, never too many.

    with Ahead(threads=4) as ahead:
        for answer in ahead.run(ask, questions, depth=8):
            ...

At most `depth` questions are asked and not yet handed over, so what is held is bounded however
slow the consumer is; a consumer that stops early leaves nothing running. What a piece of work
raises is raised where its answer would have been.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Ahead:
    """Threads that work ahead. Use as a context: leaving it waits for what has begun."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="garfield-ahead")

    def run(
        self, work: Callable[[Question], Answer], questions: Iterable[Question], depth: int
    ) -> Iterator[Answer]:
        """The answers, in the order of the questions."""
        asked: deque[Future[Answer]] = deque()
        coming = iter(questions)
        try:
            while True:
                while len(asked) < depth and (question := next(coming, None)) is not None:
                    asked.append(self._pool.submit(work, question))
                if not asked:
                    return
                yield asked.popleft().result()
        finally:  # also when the consumer has had enough
            for future in asked:
                future.cancel()

    def close(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
