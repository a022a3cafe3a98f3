"""Parts of the split server by themselves: outlet, settings, rights to a URL, queue, memory."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from garfield.core.errors import (
    AccessDenied,
    ConfigError,
    InputError,
    ObjectDamaged,
    ObjectMissing,
    RequestRefused,
    StoreUnreachable,
)
from garfield.split.scheduler import Batching
from garfield.split.server.app import SplitApp
from garfield.split.server.extraction_sizes import READ
from garfield.split.server.memory import Measured
from garfield.split.server.outlet import PIECE, ClientGone, Outlet
from garfield.split.server.queue import RequestQueue
from garfield.split.server.reading import check_below, read_object
from garfield.split.server.room import Room
from garfield.split.server.seats import Seats
from garfield.split.server.settings import ServeSettings, amount
from garfield.split.server.spool import SHARES, Spool
from garfield.split.server.weights import WeightsCache
from garfield.split.wire import Refusal, as_refusal

MiB = 1 << 20
SEAT = Seats(1).taken("192.0.2.7")


# -- outlet -----------------------------------------------------------------------------------


def test_an_outlet_gives_what_was_put_in_order_and_in_pieces():
    async def main():
        out = Outlet(10 * PIECE)
        await out.put(b"a" * (2 * PIECE + 1))
        await out.put(b"b")
        out.end()
        return [bytes(piece) async for piece in out.pieces()]

    pieces = asyncio.run(main())
    assert [len(piece) for piece in pieces] == [PIECE, PIECE, 1, 1]
    assert pieces[-1] == b"b"


async def two_taken(out, waiting):
    """The first piece, and the second, of which its producer waits for room."""
    pieces = out.pieces()
    taken = [bytes(await anext(pieces))]
    nearly = asyncio.ensure_future(anext(pieces))
    await waiting
    return [*taken, bytes(await nearly)]


def test_a_full_outlet_holds_its_producer_back_until_something_is_taken():
    async def main():
        out = Outlet(10)
        await out.put(b"0123456789abc")  # alone, it may be larger than the bound
        waiting = asyncio.ensure_future(out.put(b"x"))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert await two_taken(out, waiting) == [b"0123456789abc", b"x"]

    asyncio.run(main())


def test_what_memory_does_not_hold_goes_to_disk_and_comes_in_order(tmp_path):
    spool = Spool(tmp_path, SHARES * 3 * PIECE)
    contents = [bytes([number]) * (PIECE + number) for number in range(3)] + [b"in memory"]

    async def main():
        out = Outlet(PIECE + 9, spool.answer(SEAT))
        for content in contents:
            await out.put(content)  # returns, though nobody takes anything
        out.end()
        assert spool.held_bytes == 2 * PIECE + 3
        return [bytes(piece) async for piece in out.pieces()]

    taken = asyncio.run(main())
    assert b"".join(taken) == b"".join(contents)
    assert max(map(len, taken)) <= PIECE
    assert spool.held_bytes == 0
    assert not [*tmp_path.iterdir()]  # nor was there a name at any time


def test_answers_that_nobody_takes_share_one_memory_however_many_they_are(tmp_path):
    settings = ServeSettings(store="s3://", buffer="4MiB", buffers="8MiB")
    spool = Spool(tmp_path, SHARES * 100 * MiB)
    http = SimpleNamespace(client=SimpleNamespace(host="192.0.2.7"))

    async def ten_messages(out, seat):
        for _ in range(10):
            await out.put(bytes(MiB))
        out.end()

    async def main():
        app = SplitApp(SimpleNamespace(settings=settings, spool=spool))
        answers = [app._stream(http, ten_messages) for _ in range(5)]
        await asyncio.gather(*(each._producer for each in answers))
        assert sum(each._out._held for each in answers) == app.memory.held_bytes == 8 * MiB
        assert spool.held_bytes == 42 * MiB
        for each in answers:
            taken = [len(piece) async for piece in each._out.pieces()]
            assert sum(taken) == 10 * MiB
            each._out.abandon()
        assert (app.memory.held_bytes, spool.held_bytes) == (0, 0)

    asyncio.run(main())


def test_an_answer_that_is_given_up_lets_go_of_its_memory_once(tmp_path):
    memory = Room(10)

    async def main():
        out = Outlet(10, memory=memory)
        await out.put(b"abc")
        pieces = out.pieces()
        await anext(pieces)  # being sent
        out.abandon()
        assert memory.held_bytes == 0
        out.end()
        assert [piece async for piece in pieces] == []
        assert memory.held_bytes == 0

    asyncio.run(main())


def test_an_answer_holds_one_message_also_where_others_have_all_of_the_memory(tmp_path):
    memory = Room(4)

    async def main():
        greedy, other = Outlet(4, memory=memory), Outlet(4, memory=memory)
        await greedy.put(b"aaaa")
        await other.put(b"bb")
        waiting = asyncio.ensure_future(other.put(b"b"))
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    asyncio.run(main())


def test_where_the_disk_has_no_room_a_producer_waits_for_its_client(tmp_path):
    spool = Spool(tmp_path, SHARES * 10)

    async def main():
        greedy, other = Outlet(4, spool.answer(SEAT)), Outlet(4, spool.answer(SEAT))
        for out, content in ((greedy, b"aaaa"), (greedy, b"b" * 8), (other, b"cccc")):
            await out.put(content)
        waiting = asyncio.ensure_future(other.put(b"dddd"))
        await asyncio.sleep(0)
        assert not waiting.done()  # all of the disk is another's
        greedy.abandon()
        assert await two_taken(other, waiting) == [b"cccc", b"dddd"]

    asyncio.run(main())


def test_disk_is_freed_as_it_is_read_not_at_the_end_of_an_answer(tmp_path, monkeypatch):
    monkeypatch.setattr("garfield.split.server.spool.SEGMENT", 2 * PIECE)
    spool = Spool(tmp_path, SHARES * 4 * PIECE)

    async def main():
        out = Outlet(PIECE, spool.answer(SEAT))
        for number in range(5):
            await out.put(bytes([number]) * PIECE)
        assert spool.held_bytes == 4 * PIECE  # the first is in memory
        waiting = asyncio.ensure_future(out.put(b"5" * PIECE))
        pieces, firsts, held = out.pieces(), [], []
        for _ in range(6):
            firsts.append((await anext(pieces))[0])
            held.append(spool.held_bytes // PIECE)
            await asyncio.sleep(0)  # in which the one that waits may go on
        await waiting
        out.abandon()
        return firsts, held

    firsts, held = asyncio.run(main())
    assert firsts == [0, 1, 2, 3, 4, ord("5")]
    assert max(held) == 4
    assert held[3] == 2
    assert spool.held_bytes == 0


def test_a_tenant_has_a_share_of_the_disk_and_no_more(tmp_path):
    spool, seats = Spool(tmp_path, SHARES * 10), Seats(9)
    anns, bobs = [seats.taken("proxy") for _ in range(SHARES)], seats.taken("proxy")
    for seat in anns:
        seat.confirmed("ann")
    bobs.confirmed("bob")
    assert spool.answer(anns[0]).added(bytes(10)) is not None
    assert all(spool.answer(seat).added(b"x") is None for seat in anns)
    assert spool.answer(bobs).added(bytes(10)) is not None


def test_a_disk_that_fills_up_is_one_without_room(tmp_path, monkeypatch):
    spool = Spool(tmp_path, 100)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert spool.answer(SEAT).added(b"abc") is None
    assert spool.held_bytes == 0


def test_a_spool_leaves_room_on_the_disk_for_others(tmp_path, monkeypatch):
    spool = Spool(tmp_path, SHARES * 10 * MiB, left_free=5 * MiB)
    free = [8]
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=free[0] * 256, f_frsize=4096)
    )
    assert spool.answer(SEAT).added(bytes(4 * MiB)) is None
    assert spool.answer(SEAT).added(bytes(3 * MiB)) is not None
    free[0] = 5
    assert spool.answer(SEAT).added(b"x") is None
    assert spool.held_bytes == 3 * MiB


def test_weights_that_the_disk_has_no_room_for_are_refused_with_a_remedy(tmp_path, monkeypatch):
    data = b"weights"
    digest = sha256(data).hexdigest()
    store = SimpleNamespace(size=lambda name: len(data), get=lambda name: data)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    async def at_once(call):
        return call()

    async def main():
        async with WeightsCache(tmp_path, 100, 100).held(store, digest, at_once):
            pass

    asyncio.run(main())
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RequestRefused, match=r"No space left on device.*TMPDIR") as refused:
        asyncio.run(main())
    assert Refusal.named(refused.value.refusal).passes


def test_nothing_is_written_for_a_client_that_has_gone(tmp_path):
    spool = Spool(tmp_path, 100)

    async def main():
        out = Outlet(1, spool.answer(SEAT))
        await out.put(b"a")
        out.abandon()
        with pytest.raises(ClientGone):
            await out.put(b"b")

    asyncio.run(main())
    assert spool.held_bytes == 0


def test_a_failure_before_the_first_byte_is_raised_at_the_start_and_later_at_the_end():
    async def main(first):
        out = Outlet(100)
        if first:
            await out.put(first)
        out.end(ValueError("broken"))
        out.end()  # the first end counts
        await out.started()
        return [bytes(piece) async for piece in out.pieces()]

    for first in (b"", b"x"):
        with pytest.raises(ValueError, match="broken"):
            asyncio.run(main(first))


def test_a_producer_that_waits_learns_that_its_client_has_gone():
    async def main():
        out = Outlet(1)
        await out.put(b"xx")
        waiting = asyncio.ensure_future(out.put(b"y"))
        await asyncio.sleep(0)
        out.abandon()
        with pytest.raises(ClientGone):
            await waiting
        with pytest.raises(ClientGone):
            await out.put(b"z")

    asyncio.run(main())


# -- settings, URLs, refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 << 30), ("500 MB", 500_000_000), ("1048576", MiB), ("1.5KiB", 1536), ("7B", 7)],
)
def test_amounts_are_read(text, size):
    assert amount(text, "budget") == size


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"store": "ftp://x"}, "must begin with swift://"),
        ({"store": "s3://", "budget": "many"}, "budget must be an amount"),
        ({"store": "s3://", "budget": "-1GiB"}, "budget must be an amount"),
        ({"store": "s3://", "budget": "0B"}, "budget must be an amount"),
        ({"store": "s3://", "host": "10.0.0.1"}, "tokens need TLS"),
        ({"store": "s3://", "host": "example.org"}, "tokens need TLS"),
        ({"store": "s3://", "certificate": "x.pem"}, "go together"),
        ({"store": "s3://", "limit_by": "prayer"}, "limit_by must be auto"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(given, says):
    with pytest.raises(ConfigError, match=says):
        ServeSettings(**given)


def test_settings_become_flags_with_documentation():
    from garfield.core.config import settings_of

    settings = {setting.name: setting for setting in settings_of(ServeSettings)}
    assert {"budget", "b_min", "adapt", "swift_endpoint", "file_tokens"} <= settings.keys()
    assert all(setting.about for setting in settings.values())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_needs_no_certificate(host):
    assert ServeSettings(store="s3://", host=host).host == host


@pytest.mark.parametrize(
    ("served", "data"),
    [
        ("swift://", "swift://any/prefix"),
        ("swift://photos", "swift://photos"),
        ("swift://photos", "swift://photos/train"),
        ("file:///data", "file:///data/ann"),
        ("file:///data/", "file:///data/my%20photos"),
    ],
)
def test_what_lies_below_the_served_store_may_be_asked_for(served, data):
    check_below(served, data)


@pytest.mark.parametrize(
    ("served", "data"),
    [
        ("swift://", "s3://any"),
        ("swift://photos", "swift://photos2"),
        ("swift://photos", "swift://"),
        ("file:///data", "file:///database"),
        ("file:///data", "file:///data/../etc"),
        ("file:///data", "file:///data/%2e%2e/etc"),
        ("file:///data", "file:///data/./x"),
        ("s3://b", "http://b"),
    ],
)
def test_nothing_else_may(served, data):
    with pytest.raises(RequestRefused) as refused:
        check_below(served, data)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AccessDenied("no", status=401), 401),
        (AccessDenied("no", status=403), 403),
        (ObjectMissing("no"), 404),
        (ObjectDamaged("no"), 422),
        (StoreUnreachable("no"), 502),
        (ConfigError("no"), 400),
        (InputError("no"), 400),
    ],
)
def test_errors_of_ours_have_one_answer_each(error, status):
    assert as_refusal(error).status == status


class _Store:
    """An object that is a number of bytes longer, or shorter, than it said."""

    def __init__(self, size, said):
        self.data, self.said = bytes(range(251)) * (size // 251 + 1), said
        self.data = self.data[:size]

    def get(self, name):
        return self.data

    def get_range(self, name, start, length):
        return self.data[start : start + length]


@pytest.mark.parametrize("size", [10, READ + 7, 3 * READ])
def test_objects_are_read_whole_and_refused_if_they_changed_meanwhile(size):
    assert bytes(read_object(_Store(size, size), "part", size)) == _Store(size, size).data
    with pytest.raises(ObjectDamaged, match="part"):
        read_object(_Store(size - 1, size), "part", size)


# -- memory -----------------------------------------------------------------------------------


def _measured(load=0):
    return Measured(load, ((8, 18 * MiB), (32, 42 * MiB)), 600_000, (1,), {})


def test_every_phase_of_a_request_is_covered_by_what_is_reserved():
    for load in (0, 200 * MiB):
        for size in (MiB, 500 * MiB):
            for b_min in (1, 8, 25):
                base, per_sample = _measured(load).needs(size, b_min)
                for batch in (b_min, 30, 200):
                    reserved = base + batch * per_sample
                    assert reserved >= load
                    assert reserved >= 10 * MiB + size + max(batch, 8) * MiB
                    assert size < READ or reserved >= 10 * MiB + size + READ


def test_what_was_killed_once_is_given_more():
    before, after = _measured(MiB), _measured(MiB).widened()
    assert after.line.per_sample_bytes > before.line.per_sample_bytes
    assert after.line.base_bytes > before.line.base_bytes


# -- queue ------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Worker:
    device: str
    busy: bool = False
    idle_bytes: int = 10 * MiB


@dataclass
class _Pool:
    """Workers that are none, so that the queue can be seen alone."""

    budgets: dict
    count: int
    workers: list = field(default_factory=list)
    changed: object = None

    def __post_init__(self):
        self.workers = [_Worker(device) for device in self.budgets for _ in range(self.count)]

    def free(self, device):
        return [w for w in self.workers if w.device == device and not w.busy]

    def idle_bytes(self, device):
        return sum(w.idle_bytes for w in self.workers if w.device == device)

    def released(self, worker):
        worker.busy = False
        self.changed()


def _queue(budget=1000, count=4, devices=1, **options):
    pool = _Pool({f"cpu{index}": budget * MiB for index in range(devices)}, count)
    return RequestQueue(pool, Batching(), **options)


def test_grants_fill_the_budget_and_never_exceed_it():
    async def main():
        queue = _queue()
        grants = await asyncio.gather(*(queue.granted(10 * MiB, MiB, 500) for _ in range(4)))
        assert queue.running == 4
        assert 999 * MiB < queue.reserved_bytes("cpu0") <= 1000 * MiB
        assert queue.records["cpu0"].peak_reserved_bytes == queue.reserved_bytes("cpu0")
        for grant in grants:
            assert grant.most_bytes == 10 * MiB + grant.reserved_bytes
            queue.release(grant)
        assert queue.reserved_bytes("cpu0") == 40 * MiB

    asyncio.run(main())


def test_no_more_run_than_there_are_workers_and_who_waits_comes_next():
    async def main():
        queue = _queue(count=2)
        running = [await queue.granted(MiB, MiB, 25) for _ in range(2)]
        third = asyncio.ensure_future(queue.granted(MiB, MiB, 25))
        await asyncio.sleep(0.05)
        assert not third.done()
        queue.release(running[0])
        assert (await third).worker is running[0].worker

    asyncio.run(main())


def test_who_stops_waiting_is_forgotten_and_a_grant_that_came_meanwhile_goes_back():
    async def main():
        queue = _queue(count=1)
        grant = await queue.granted(MiB, MiB, 25)
        waiting = asyncio.ensure_future(queue.granted(MiB, MiB, 25))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert queue.waiting == 0
        late = asyncio.ensure_future(queue.granted(MiB, MiB, 25))
        await asyncio.sleep(0.02)
        queue.release(grant)  # grants it to the one that waits,
        late.cancel()  # which goes in the same moment
        with pytest.raises(asyncio.CancelledError):
            await late
        assert (queue.running, queue.waiting) == (0, 0)
        assert len(queue._pool.free("cpu0")) == 1

    asyncio.run(main())


def test_a_request_that_fits_no_device_is_refused_and_a_full_queue_says_so():
    async def main():
        queue = _queue(budget=100, count=1, most_waiting=1)
        with pytest.raises(RequestRefused, match="125 MiB at the smallest batch") as refused:
            await queue.granted(100 * MiB, MiB, 25)
        assert refused.value.status == 507
        grant = await queue.granted(MiB, MiB, 25)
        waiting = asyncio.ensure_future(queue.granted(MiB, MiB, 25))
        await asyncio.sleep(0.02)
        with pytest.raises(RequestRefused, match="1 requests wait already"):
            await queue.granted(MiB, MiB, 25)
        queue.release(grant)
        queue.release(await waiting)

    asyncio.run(main())


def test_requests_go_to_the_device_that_runs_fewer():
    async def main():
        queue = _queue(devices=2)
        grants = [await queue.granted(MiB, MiB, 25) for _ in range(4)]
        assert sorted(grant.worker.device for grant in grants) == ["cpu0", "cpu0", "cpu1", "cpu1"]

    asyncio.run(main())
