"""One server and one device of a federated training, in one process, over real gRPC."""

import threading
from contextlib import contextmanager
from dataclasses import replace

from garfield.core.config import made
from garfield.core.errors import GarfieldError
from garfield.fedgan.device import Trainer
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.networks import gan_for
from garfield.fedgan.nodes.device_clusters import DeviceClusters
from garfield.fedgan.nodes.device_node import DeviceLimits, DeviceNode
from garfield.fedgan.nodes.messages import About, AboutClusters
from garfield.fedgan.nodes.node_process import Wiring, first_state
from garfield.fedgan.nodes.server_node import ServerLimits, ServerNode
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state import open_state_database

ABOUT = About("lsgan(width=0.125)", (1, 28, 28), ("one", "two"), False, "reset")
CLUSTERED = replace(
    ABOUT, classes=("cluster 0", "cluster 1"), clusters=AboutClusters("pixels 8", tells_sums=True)
)
LAYOUT = StateLayout.of(first_state(gan_for(ABOUT.gan, ABOUT.image), ABOUT))


class Pair:
    """Use as a context: the server leads in a thread, and leaves at its end as a process does."""

    def __init__(self, directory, data, *, rounds=1, about=ABOUT, absent=(), join_s=120):
        """`absent` are names of devices that it waits for as well."""
        self._about, self._absent, self._join_s = about, absent, join_s
        self.failure = None
        self._directory, self._data, self._rounds = directory, data, rounds

    def __enter__(self):
        self.database = open_state_database(self._directory / "state.sqlite", "pair")
        self._wiring = Wiring(("server-0",), ("device-0", *self._absent), None)
        self._gan = gan_for(ABOUT.gan, ABOUT.image)
        self._serving = self._wiring.transport("server-0", {}, listen="127.0.0.1:0")
        settings = made(
            FedganSettings,
            {
                "devices": 1 + len(self._absent), "fraction": 1.0, "rounds": self._rounds,
                "local_steps": 2, "batch": 8,
            },
        )  # fmt: skip
        server = ServerNode(
            "server-0", self._gan, self._about, settings, self._serving, self._wiring.devices,
            self.database, ServerLimits(round_s=60, join_s=self._join_s),
        )  # fmt: skip
        self.address = self._serving.address
        self._leading = threading.Thread(target=self._lead, args=[server])
        self._leading.start()
        return self

    def __exit__(self, *_):
        self._leading.join()
        self.database.close()

    def _lead(self, server):
        try:
            server.run()
        except GarfieldError as failure:
            self.failure = failure
        finally:
            self._serving.close()

    @contextmanager
    def device(
        self, *, at=None, around=lambda transport: transport, give_up_s=60, data=None, version=0,
        trainer=None, metadata=None,
    ):  # fmt: skip
        """The device, which finds its server at that address, over that transport."""
        dialling = self._wiring.transport("device-0", {"server-0": at or self.address})
        data = data or self._data
        metadata = metadata or _declared(data)
        if self._about.clusters is not None:
            metadata = DeviceClusters(0, data, self._about, _declared)
        try:
            yield DeviceNode(
                0, trainer or Trainer(self._gan), data, around(dialling), ["server-0"],
                layout=LAYOUT, metadata=metadata, limits=DeviceLimits(give_up_s=give_up_s),
                version=version,
            )  # fmt: skip
        finally:
            dialling.close()


def _declared(data):
    return DeviceMetadata(data.class_counts(2))
