"""Servers and devices agree on clusters over a transport, as simulated devices do without one."""

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
import torch

from garfield.core.errors import ConfigError, InputError, LeaseLost, QuorumError
from garfield.fedgan.cluster_features import PixelFeatures, features_of
from garfield.fedgan.clustering import ROUNDS, PublishedClusters, digest_of
from garfield.fedgan.device import DeviceData, Trainer
from garfield.fedgan.image_data import clustered
from garfield.fedgan.metadata import DeviceMetadata, NoisedCounts
from garfield.fedgan.nodes.committed import clusters_of
from garfield.fedgan.nodes.device_clusters import DeviceClusters
from garfield.fedgan.nodes.device_node import DeviceNode
from garfield.fedgan.nodes.messages import (
    CENTROIDS,
    CLUSTERS,
    METADATA,
    SUMS,
    TURN,
    About,
    AboutClusters,
    Announcement,
    ClusterNotice,
)
from garfield.fedgan.nodes.node_process import first_state, gan_of
from garfield.fedgan.nodes.server_clusters import ServerClusters
from garfield.fedgan.nodes.server_node import ServerLimits, ServerNode
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.state import open_state_database
from garfield.fedgan.state.database import Token
from garfield.nodes.outbox import Outbox
from garfield.transport.contract import Key, WrappedTransport
from garfield.transport.simulated import Simulation
from tests.fedgan_kinds import POPULATION, settings

DATA = [data for data, _ in POPULATION]
NAMES = ["device-0", "device-1", "device-2"]
ABOUT = About(
    "lsgan(width=0.0625)", (1, 16, 16), tuple(f"cluster {k}" for k in range(4)), False, "reset",
    clusters=AboutClusters("pixels 8", tells_sums=True),
)  # fmt: skip
GAN = gan_of(ABOUT)
LAYOUT = StateLayout.of(first_state(GAN, ABOUT))


def without_sums():
    return replace(ABOUT, clusters=AboutClusters("pixels 8", tells_sums=False))


def declares(data):
    return DeviceMetadata(data.class_counts(4))


class Died(Exception):  # noqa: N818 (it stands for a kill)
    """What a server meets whose process is killed."""


class Nodes:
    """Devices on a simulated network, and servers that lead one after the other."""

    def __init__(self, tmp_path, about=ABOUT, servers=("server-0", "server-1")):
        self.database = open_state_database(tmp_path / "state.sqlite", "run")
        self.about, self.servers = about, servers
        self.simulation = Simulation()
        self.devices = []

    def join(self, around=lambda name, transport: transport):
        for number, name in enumerate(NAMES):
            transport = around(name, self.simulation.transport(name))
            self.devices.append(
                DeviceNode(
                    number, Trainer(GAN), DATA[number], transport, self.servers, layout=LAYOUT,
                    metadata=DeviceClusters(number, DATA[number], self.about, declares),
                )
            )  # fmt: skip
            self.simulation.spawn(self.devices[-1].run)

    def lead(self, name="server-0", public=None, **given):
        """Begin a server, or let another one take over."""
        node = ServerNode(
            name, GAN, self.about, settings(**given), self.simulation.transport(name), NAMES,
            self.database, ServerLimits(join_s=5.0, linger_s=0.0), public_clusters=public,
        )  # fmt: skip
        self.simulation.spawn(node.run)
        return node

    def lead_until_killed(self, **given):
        """Begin a server, in whose place another leads once it has Died."""
        dying = self.lead(**given)
        self.simulation._ready.pop()  # the server's program, which is to bear that

        def unless_killed():
            try:
                dying.run()
            except Died:
                self.lead("server-1", **given)

        self.simulation.spawn(unless_killed)
        return dying

    def run(self):
        """Until the servers are done, however long devices would wait for another."""
        self.simulation.run()

    def told(self):
        """Rounds of questions that devices have answered with sums."""
        return [len(device._clusters._answered) for device in self.devices]


def test_devices_find_the_clusters_that_simulated_ones_find_and_train(tmp_path):
    expected, published = clustered(DATA, settings())
    nodes = Nodes(tmp_path)
    nodes.join()
    nodes.lead(rounds=2)
    nodes.run()
    kept = nodes.database.latest()
    assert kept.round == 2
    found = clusters_of(kept)
    assert found.key == published.key
    assert torch.equal(found.centroids, published.centroids)
    for name, device, wanted in zip(NAMES, nodes.devices, expected, strict=True):
        assert torch.equal(device.data.labels, wanted.labels)
        assert kept.devices[name]["samples"] == list(wanted.class_counts(4))
    assert all(2 <= count <= ROUNDS + 1 for count in nodes.told())


def test_with_public_images_nothing_is_asked_for_but_counts(tmp_path):
    public = PublishedClusters("pixels 8", torch.rand(4, 64) * 2 - 1)
    nodes = Nodes(tmp_path, without_sums())
    nodes.join()
    nodes.lead(public=lambda: public, rounds=1, public_images="fashion", missing_classes="allow")
    nodes.run()
    assert torch.equal(clusters_of(nodes.database.latest()).centroids, public.centroids)
    assert nodes.told() == [0, 0, 0]


def test_another_server_goes_on_with_the_clusters_that_were_committed(tmp_path):
    first = Nodes(tmp_path)
    first.join()
    first.lead(rounds=1)
    first.run()
    before = first.database.latest()
    second = Nodes(tmp_path)
    second.join()  # they were started anew, and know nothing
    second.lead("server-1", rounds=2)
    second.run()
    after = second.database.latest()
    assert after.round == 2
    assert torch.equal(clusters_of(after).centroids, clusters_of(before).centroids)
    assert [after.devices[name] for name in NAMES] == [before.devices[name] for name in NAMES]
    assert second.told() == [0, 0, 0]


def test_a_server_that_dies_while_clusters_are_found_costs_no_further_sums(tmp_path, monkeypatch):
    nodes = Nodes(tmp_path)
    nodes.join()
    nodes.lead_until_killed(rounds=1, seed=2)
    published = []
    publish = ServerClusters.publish

    def die(self, *given):
        published.append(given)
        if len(published) == 1:
            raise Died
        publish(self, *given)

    monkeypatch.setattr(ServerClusters, "publish", die)
    nodes.run()
    assert nodes.database.latest().round == 1
    once, again = (clusters.centroids for clusters, _ in published)
    assert torch.equal(once, again)
    assert all(count <= ROUNDS + 1 for count in nodes.told())


def test_a_server_that_dies_before_its_first_commit_is_followed_by_one_with_its_clusters(
    tmp_path, monkeypatch
):
    """Devices have counted by what it published, and would not count by anything else."""
    nodes = Nodes(tmp_path)
    nodes.join()
    dying = nodes.lead_until_killed(rounds=1, seed=2)
    versions = []

    def die(*given):
        versions.append([device._version for device in nodes.devices])
        raise Died

    monkeypatch.setattr(dying, "_commit", die)
    nodes.run()
    assert all(version > 0 for version in versions[0])
    assert nodes.database.latest().round == 1
    assert all(count <= ROUNDS + 1 for count in nodes.told())


class Lies(WrappedTransport):
    """A device whose sums are changed before anybody sees them."""

    def __init__(self, inner, change):
        super().__init__(inner)
        self._change = change

    def serve(self, outbox):
        publish = outbox.publish

        def changed(key, vector, **how):
            if key.kind == SUMS.name:
                vector = self._change(np.array(vector))
            publish(key, vector, **how)

        outbox.publish = changed
        super().serve(outbox)


def one_image(row):
    row[0] = 1
    return row


def too_many(row):
    row.reshape(4, -1)[:, 0] += 10_000  # sums of more images than are declared later
    return row


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (one_image, "^device-1 sends a sum of 1.0 images for cluster 0"),
        (lambda row: row * 1e6, "^device-1 sends "),
        (lambda row: row * np.inf, r"device-1 \(not finite\)"),
        (lambda row: row[:-1], r"device-1 \(sent .* of .*\)"),
        (too_many, "^device-1 has sent sums of 400.. images, and declares 34"),
    ],
)
def test_a_device_that_lies_about_sums_ends_the_start_by_its_name(change, told, tmp_path):
    nodes = Nodes(tmp_path)
    nodes.join(lambda name, inner: Lies(inner, change) if name == "device-1" else inner)
    nodes.lead(rounds=1)
    with pytest.raises((InputError, QuorumError), match=told):
        nodes.run()
    assert nodes.database.latest() is None


class Overtaken:
    """The lease of a server that was frozen while another took over."""

    token = Token(1, "server-0", 1.0)

    def latest(self):
        return None

    def check(self):
        raise LeaseLost("server-1 has taken over")


def test_a_server_whom_nobody_answers_as_another_leads_takes_no_offence(tmp_path):
    nodes = Nodes(tmp_path)
    frozen = nodes.lead(rounds=1)
    nodes.simulation._ready.pop()
    nodes.simulation.spawn(lambda: frozen._lead(Overtaken(), Event()))
    with pytest.raises(LeaseLost):
        nodes.run()


# -- servers that are not to be followed ------------------------------------------------------

GOOD = torch.rand(4, 64)
NOTICE = ClusterNotice("pixels 8", (4, 64), digest_of(GOOD), final=True, seed=0)


@pytest.mark.parametrize(
    ("notice", "sent"),
    [
        (replace(NOTICE, key="pixels 9"), GOOD),
        (replace(NOTICE, key="small-cnn " + 64 * "0"), GOOD),
        (replace(NOTICE, shape=(5, 64)), GOOD),
        (replace(NOTICE, shape=(4, 63)), GOOD[:, :63]),
        (replace(NOTICE, digest=digest_of(GOOD + 1)), GOOD),
        (replace(NOTICE, final=False), GOOD),  # sums, which it said it would not ask for
        (replace(NOTICE, final=False, digest=None), None),
        ({"key": "pixels 8"}, GOOD),
    ],
)
def test_a_device_follows_no_clusters_but_those_that_the_training_is_about(
    notice, sent, tmp_path, caplog
):
    nodes = Nodes(tmp_path, without_sums())
    nodes.join()
    outbox = Outbox()
    document = notice if isinstance(notice, dict) else notice.as_json()
    if sent is not None:
        outbox.publish(Key(CENTROIDS.name, 7), sent.reshape(-1).numpy())
    outbox.publish(Key(CLUSTERS.name, 7), CLUSTERS.to_payload(document))
    nodes.simulation.transport("server-0").serve(outbox)
    for turn, said in ((7, Announcement(0, clusters=7)), (8, Announcement(0, ended="enough"))):
        outbox.publish(Key(TURN.name, turn), TURN.to_payload(said.as_json()))
        nodes.simulation.run(lambda turn=turn: all(d._turn == turn for d in nodes.devices))
    for device in nodes.devices:
        assert (device._clustered, device._version) == (0, -1)
        assert not any(key.kind == SUMS.name for key in device._outbox._vectors)
    assert "server-0 " in caplog.text


def test_good_clusters_are_followed(tmp_path):
    """So that what is refused above is refused for what is wrong with it."""
    found = DeviceClusters(0, DATA[0], without_sums(), declares)
    found.check("server-0", NOTICE)
    assert torch.equal(found.centroids("server-0", NOTICE, GOOD.reshape(-1).numpy()), GOOD)


def test_a_device_answers_no_more_questions_than_it_takes():
    device = DeviceClusters(0, DATA[0], ABOUT, declares)
    rng = torch.Generator().manual_seed(0)
    asked = [torch.rand(4, 64, generator=rng) for _ in range(ROUNDS + 1)]
    notices = [replace(NOTICE, digest=digest_of(each), final=False) for each in asked]
    told = [device.sums("server-0", *each) for each in zip(notices, asked, strict=True)]
    again = device.sums("server-1", notices[0], asked[0])
    assert np.array_equal(again, told[0])
    with pytest.raises(InputError, match=f"server-1 asks for sums once more, and {ROUNDS + 1}"):
        device.sums("server-1", replace(NOTICE, digest=None, final=False), None)


def test_a_device_counts_its_images_by_one_choice_of_centroids(tmp_path, caplog):
    """Else a server could ask how many are near whatever it likes, as often as it likes."""
    nodes = Nodes(tmp_path, without_sums())
    nodes.join()
    outbox = Outbox()
    nodes.simulation.transport("server-0").serve(outbox)

    def say(turn, **what):
        outbox.publish(Key(TURN.name, turn), TURN.to_payload(Announcement(0, **what).as_json()))
        nodes.simulation.run(lambda: all(device._turn == turn for device in nodes.devices))

    for turn, centroids in ((7, GOOD), (8, GOOD.flip(0)), (9, GOOD)):
        notice = replace(NOTICE, digest=digest_of(centroids))
        outbox.publish(Key(CENTROIDS.name, turn), centroids.reshape(-1).numpy())
        outbox.publish(Key(CLUSTERS.name, turn), CLUSTERS.to_payload(notice.as_json()))
        say(turn, clusters=turn)
    say(10, ended="enough")
    for device in nodes.devices:
        told = [device._outbox.own(Key(METADATA.name, turn)) for turn in (7, 8, 9)]
        assert told[1] is None
        assert np.array_equal(told[0], told[2])
    assert "server-0 publishes centroids" in caplog.text
    assert "Start this device again" in caplog.text


def test_counts_are_noised_once():
    told = NoisedCounts(0.1, np.random.default_rng(0))
    device = DeviceClusters(
        0, DATA[0], without_sums(), lambda data: DeviceMetadata(told.of(data.class_counts(4)))
    )
    first = device.labelled("server-0", GOOD)[1]
    assert device.labelled("server-1", GOOD)[1] == first
    with pytest.raises(InputError, match=r"counted by [0-9a-f]{12} already"):
        device.labelled("server-1", GOOD.flip(0))


def test_a_device_knows_the_features_or_does_not_take_part():
    strange = replace(ABOUT, clusters=AboutClusters("small-cnn 2cdb", tells_sums=False))
    with pytest.raises(InputError, match=r"does not have\. Install the version"):
        DeviceClusters(0, DATA[0], strange, declares)
    nothing = DeviceData.unlabelled(DATA[0].images[:0])
    with pytest.raises(InputError, match="device-4 has no image"):
        DeviceClusters(4, nothing, ABOUT, declares)


def test_a_state_of_other_clusters_is_not_gone_on_with():
    clusters = ServerClusters(None, Outbox(), NAMES, ABOUT, seed=0)
    with pytest.raises(ConfigError, match="has 3 clusters of features by 'pixels 8'"):
        clusters.publish(PublishedClusters("pixels 8", torch.rand(3, 64)), 1)
    with pytest.raises(ConfigError, match="Take the version of the library that began it"):
        clusters.publish(PublishedClusters("small-cnn 00", torch.rand(4, 64)), 1)


def test_what_is_sent_is_what_a_simulated_device_would_send():
    device = DeviceClusters(2, DATA[2], ABOUT, declares)
    assert torch.equal(device._features, features_of([DATA[2]], PixelFeatures())[0])
