"""Long vectors between processes of one host, handed over as descriptors of sealed memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from garfield.transport.contract import Key, Payload, Ready
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import Attempt, Received, check_finite
from garfield.transport.grpc.server import Call
from garfield.transport.same_host import descriptors, memfd
from garfield.transport.same_host.descriptors import DescriptorServer

_HANDOVER_S = 2.0  # for a descriptor, on one host; then the vector itself is asked for


class SealedMemory:
    """One node's way to those peers that share `directory` with it, and so a host."""

    flag = wire.Flag.DESCRIPTOR

    def __init__(self, name: str, directory: Path | str) -> None:
        self._name = name
        self._directory = descriptors.private(directory)
        self._server: DescriptorServer | None = None
        self.bytes_sent = self.bytes_received = 0

    def open(self, listen: str) -> None:
        self._server = DescriptorServer(self._directory, self._name)
        self._server.open()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()

    def shared_copy(self, vector: Payload) -> Payload | None:
        if vector.nbytes <= wire.CHUNK:
            return None
        try:
            return memfd.kept(vector)
        except OSError:  # no descriptors left: it will be sent in chunks
            return None

    def wanted(self, attempt: Attempt) -> bool:
        here = descriptors.socket_path(self._directory, attempt.peer)
        return not attempt.by_chunks and here.exists()

    async def fetch(self, call: Any, header: wire.Header, attempt: Attempt) -> Received:
        work = descriptors.fetch(self._directory, attempt.peer, header.ticket, attempt.request)
        try:
            row = await asyncio.wait_for(work, min(attempt.stall_s, _HANDOVER_S))
        except (OSError, asyncio.TimeoutError):  # same host or not, descriptors do not get here
            attempt.by_chunks = True
            raise
        await check_finite(row)
        self.bytes_received += row.nbytes
        return Received(row)

    async def send(self, answer: Ready, key: Key, header: wire.Header, call: Call) -> bool:
        long_and_honest = header.total > wire.CHUNK and answer.pace_bps is None
        if self._server is None or not long_and_honest or isinstance(answer.payload, bytes):
            return False
        try:
            descriptor = await self._server.copy(key, answer.payload)
        except OSError:  # no memory for a copy, or no descriptors left
            return False
        with self._server.ticket(descriptor) as (ticket, used):
            try:
                await call.write(replace(header, flags=self.flag, ticket=ticket).encode())
                await used.wait()  # or for the call's deadline, which the asker has set
            finally:  # an asker that has the descriptor may cancel its call in that very moment
                if used.is_set():
                    self.bytes_sent += header.total
        return True
