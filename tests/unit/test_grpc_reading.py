"""Messages of a call that stalls, and of one that gRPC never ends."""

import asyncio

import pytest

from garfield.core.silence import Reason
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import _ends, _read
from garfield.transport.grpc.options import aio


class Attempt:
    stall_s = 0.01
    progress = "3 of 4 bytes"


class Call:
    """Its messages, then nothing: not even a word of being cancelled, as from gRPC now and then."""

    def __init__(self, *messages):
        self._messages = list(messages)
        self.cancelled = False

    async def read(self):
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    def cancel(self):
        self.cancelled = True


def test_a_message_that_is_there_is_read():
    assert asyncio.run(_read(Call(b"chunk"), Attempt())) == b"chunk"


def test_a_call_that_stalls_is_given_up_though_it_never_says_that_it_ended():
    call = Call()
    with pytest.raises(wire.WireError) as problem:
        asyncio.run(_read(call, Attempt()))
    assert problem.value.silence.reason is Reason.STALLED
    assert call.cancelled


@pytest.mark.parametrize(("messages", "ends"), [([], True), ([aio.EOF], True), ([b"more"], False)])
def test_a_vector_that_is_there_whole_counts_whatever_becomes_of_its_call(messages, ends):
    assert asyncio.run(_ends(Call(*messages), Attempt())) is ends


def test_whoever_is_cancelled_while_reading_hears_of_it():
    attempt = Attempt()
    attempt.stall_s = 60.0

    async def main():
        reading = asyncio.ensure_future(_read(Call(), attempt))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(main())
