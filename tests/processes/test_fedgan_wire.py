"""What crosses the wire of a device: models and declared metadata, and nothing of its data.

Without labels it is asked for sums of features too: of many images, and none of one.

Device and server talk through a relay that keeps all bytes, without TLS so that they can be read.
The images are noise, so that no part of them can be in anything else by chance.
"""

import socket
import threading
from contextlib import closing

import numpy as np
import pytest
import torch

from garfield.fedgan.cluster_features import PixelFeatures, own_features
from garfield.fedgan.clustering import ROUNDS as MOST_SUMS
from garfield.fedgan.device import DeviceData
from garfield.fedgan.nodes.messages import METADATA, REPORT
from tests.fedgan_pair import ABOUT, CLUSTERED, LAYOUT, Pair

pytestmark = pytest.mark.slow

ROUNDS = 3


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


@pytest.mark.parametrize("about", [ABOUT, CLUSTERED], ids=["labels", "clusters"])
def test_nothing_of_the_data_leaves_a_device(about, tmp_path):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (64, 1, 28, 28), dtype=np.uint8)
    labels = torch.from_numpy(rng.integers(0, 2, 64))
    data = DeviceData(torch.from_numpy(images), labels)
    pair = Pair(tmp_path, data, rounds=ROUNDS, about=about)
    with pair, closing(Relay(pair.address)) as relay:
        with pair.device(at=relay.address) as device:
            assert device.run() == "all rounds are over"
        kept = pair.database.latest()
    assert kept.round == device.turns_trained == ROUNDS

    # what is seen is what was sent: the last model is in it, but for where it was cut in frames
    largest = pieces(max(kept.tensors.values(), key=torch.numel).numpy())
    assert sum(piece in relay.sent for piece in largest) > 0.95 * len(largest)

    as_trained_on = data.batch(np.arange(64))[0].numpy()
    features = own_features(data, PixelFeatures()).numpy()
    for form in (
        images, as_trained_on, images.astype(np.float32), labels.numpy().astype(np.uint8),
        features, features.astype(np.float64),
    ):  # fmt: skip
        assert not any(piece in relay.sent for piece in pieces(form))

    # and it is no more than states, reports and metadata take, and sums if they are asked for
    declared = 4 * (ROUNDS * (LAYOUT.length + REPORT.length) + METADATA.length)
    if about.clusters is not None:
        declared += 8 * (1 + MOST_SUMS) * len(about.classes) * (1 + features.shape[1])
    assert 4 * ROUNDS * LAYOUT.length < len(relay.sent) < 1.05 * declared + 20_000
