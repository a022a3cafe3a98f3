"""What crosses the wire of a device: models and declared metadata, and nothing of its data.

Device and server talk through a relay that keeps all bytes, without TLS so that they can be read.
The images are noise, so that no part of them can be in anything else by chance.
"""

import socket
import threading

import numpy as np
import pytest
import torch

from garfield.core.config import made
from garfield.fedgan.device import DeviceData, Trainer
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.networks import gan_for
from garfield.fedgan.nodes.device_node import DeviceLimits, DeviceNode
from garfield.fedgan.nodes.messages import METADATA, REPORT, About
from garfield.fedgan.nodes.node_process import Wiring, first_state
from garfield.fedgan.nodes.server_node import ServerLimits, ServerNode
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import open_state_database

pytestmark = pytest.mark.slow

ROUNDS = 3
ABOUT = About("lsgan(width=0.125)", (1, 28, 28), ("one", "two"), False, "reset")


class Relay:
    """A port that passes everything on to another, and keeps what comes from who connects."""

    def __init__(self, target):
        self.sent = bytearray()
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._sockets, self._threads = [], []
        self._run(self._accept)

    def _run(self, work, *given):
        self._threads.append(threading.Thread(target=work, args=given))
        self._threads[-1].start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            host, port = self._target.rsplit(":", 1)
            far = socket.create_connection((host, int(port)))
            self._sockets += [near, far]
            self._run(self._pass_on, near, far, True)
            self._run(self._pass_on, far, near, False)

    def _pass_on(self, source, sink, kept):
        try:
            while data := source.recv(1 << 16):
                if kept:
                    self.sent += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._sockets:
            each.close()
        for thread in self._threads:
            thread.join()


def pieces(array, length=16, every=256):
    """Parts of an array's bytes, far more than it takes to recognise it by."""
    data = np.ascontiguousarray(array).tobytes()
    return {data[at : at + length] for at in range(0, len(data) - length, every)}


def test_nothing_of_the_data_leaves_a_device(tmp_path):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (64, 1, 28, 28), dtype=np.uint8)
    labels = torch.from_numpy(rng.integers(0, 2, 64))
    data = DeviceData(torch.from_numpy(images), labels)
    settings = made(
        FedganSettings,
        {"devices": 1, "fraction": 1.0, "rounds": ROUNDS, "local_steps": 2, "batch": 8},
    )
    gan = gan_for(ABOUT.gan, ABOUT.image)
    wiring = Wiring(("server-0",), ("device-0",), None)
    database = open_state_database(tmp_path / "state.sqlite", "wire")
    serving = wiring.transport("server-0", {}, listen="127.0.0.1:0")
    server = ServerNode("server-0", gan, ABOUT, settings, serving, ["device-0"], database,
                        ServerLimits(round_s=60))  # fmt: skip
    relay = Relay(serving.address)
    dialling = wiring.transport("device-0", {"server-0": relay.address})
    layout = StateLayout.of(first_state(gan, ABOUT))
    device = DeviceNode(
        0, Trainer(gan), data, dialling, ["server-0"], layout=layout,
        metadata=DeviceMetadata(data.class_counts(2)), limits=DeviceLimits(give_up_s=60),
    )  # fmt: skip
    leading = threading.Thread(target=server.run)
    leading.start()
    try:
        assert device.run() == "all rounds are over"
    finally:
        leading.join()
        dialling.close()
        relay.close()
        serving.close()
        kept = database.latest()
        database.close()
    assert kept.round == device.turns_trained == ROUNDS

    # what is seen is what was sent: the last model is in it, but for where it was cut in frames
    largest = pieces(max(kept.tensors.values(), key=torch.numel).numpy())
    assert sum(piece in relay.sent for piece in largest) > 0.95 * len(largest)

    as_trained_on = data.batch(np.arange(64))[0].numpy()
    for form in (images, as_trained_on, images.astype(np.float32), labels.numpy().astype(np.uint8)):
        assert not any(piece in relay.sent for piece in pieces(form))

    # and it is no more than states, reports and metadata take
    declared = 4 * (ROUNDS * (layout.length + REPORT.length) + METADATA.length)
    assert 4 * ROUNDS * layout.length < len(relay.sent) < 1.05 * declared + 20_000
