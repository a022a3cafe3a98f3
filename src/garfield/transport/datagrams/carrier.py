"""Vectors on some links travel as datagrams, which may be lost.

As in AggregaThor (Damaskinos, El Mhamdi, Guerraoui, Guirguis, Rouault, SysML
2019): a few workers send by UDP, which retransmits nothing, waits for nothing,
and lets one lost packet hold up no other. Asking, waiting for the vector to be
there, and "gone" stay on gRPC, which also hands over the key that seals the
datagrams; only the vector itself may be lost in parts. What is lost is filled
(`filling.py`), and `Replies.holes` says where.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from garfield.transport.contract import Key, Payload, Ready
from garfield.transport.datagrams.client import DatagramClient
from garfield.transport.datagrams.links import LossyLinks
from garfield.transport.datagrams.server import DatagramServer
from garfield.transport.grpc import wire
from garfield.transport.grpc.carriers import Attempt, Received
from garfield.transport.grpc.server import Call


class Datagrams:
    """One node's lossy links; `links` says which they are, and is the same at all nodes.

    The UDP port has the number of the gRPC port, unless the system chooses that one.
    """

    flag = wire.Flag.DATAGRAMS

    def __init__(self, name: str, links: LossyLinks) -> None:
        self.server = DatagramServer(name, links)
        self.client = DatagramClient(name, links)

    @property
    def bytes_sent(self) -> int:
        return self.server.bytes_sent

    @property
    def bytes_received(self) -> int:
        return self.client.bytes_received

    def open(self, listen: str) -> None:
        self.server.open(listen)

    async def close(self) -> None:
        self.server.close()

    def shared_copy(self, vector: Payload) -> Payload | None:
        return None

    def wanted(self, attempt: Attempt) -> bool:
        return self.client.serves(attempt)

    async def fetch(self, call: Any, header: wire.Header, attempt: Attempt) -> Received:
        return await self.client.fetch(call, attempt)

    async def send(self, answer: Ready, key: Key, header: wire.Header, call: Call) -> bool:
        if answer.pace_bps is not None:
            return False
        vector = wire.raw(answer.payload)
        with self.server.session(call.asker, key, vector, call.origin) as offer:
            await call.write(replace(header, flags=self.flag).encode())
            await call.write(offer.encode())
            await asyncio.Event().wait()  # until the asker ends the call, which has a deadline
        return True
