"""Connections of the split server, by themselves: who takes nothing does not keep one."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import anyio
import pytest

pytest.importorskip("uvicorn")

from garfield.split.server import http
from garfield.split.server.settings import ServeSettings

ANSWER = bytes(32 << 20)  # more than the kernel holds between here and there


async def answers_at_once(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": ANSWER})


@asynccontextmanager
async def served(app):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = http.http_server(app, ServeSettings(store="s3://", receive_s=0.2))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            await serving


async def until(holds):
    with anyio.fail_after(60):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("asked_for", ["close", "keep-alive"])
def test_who_never_takes_the_last_of_an_answer_is_cut_off(asked_for, monkeypatch):
    monkeypatch.setattr(http, "KEEP_ALIVE_S", 0.2)

    async def main():
        async with served(answers_at_once) as address:
            _, writer = await asyncio.open_connection(*address, limit=1)  # which reads a little
            writer.write(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: {asked_for}\r\n\r\n".encode())
            await until(lambda: http._CONNECTIONS)
            await until(lambda: not http._CONNECTIONS)
            writer.transport.abort()

    asyncio.run(main())


def test_who_begins_no_request_is_cut_off():
    async def main():
        async with served(answers_at_once) as address:
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(main())
