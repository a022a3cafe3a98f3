"""Devices without labels: clusters that all of them share, and counts by cluster."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from garfield.cli.app import run
from garfield.core.config import made
from garfield.core.errors import ConfigError, InputError
from garfield.data import load
from garfield.fedgan.cluster_features import (
    PixelFeatures,
    features_for,
    features_of,
    own_features,
    published_extractor,
)
from garfield.fedgan.clustering import (
    LEAST,
    ClusterSums,
    PublishedClusters,
    federated_centroids,
    first_centroids,
    local_sums,
    next_centroids,
)
from garfield.fedgan.device import DeviceData
from garfield.fedgan.image_data import clustered, dataset_for, devices_of
from garfield.fedgan.judging.shipped import SHIPPED
from garfield.fedgan.metadata import MOST_SAMPLES
from garfield.fedgan.networks import gan_for
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.simulation import declared, declared_by, simulated
from garfield.fedgan.weighting import kl_divergence
from tests.fedgan_kinds import KINDS, POPULATION, device, picture, settings


def test_devices_with_the_same_kinds_of_images_name_them_alike():
    found, published = clustered([data for data, _ in POPULATION], settings())
    names = {}  # of each kind: every cluster that any device put it in
    for data, (_, truth) in zip(found, POPULATION, strict=True):
        for kind, cluster in zip(truth.tolist(), data.labels.tolist(), strict=True):
            names.setdefault(kind, set()).add(cluster)
    assert sorted(names) == [0, 1, 2, 3]
    assert all(len(each) == 1 for each in names.values())
    assert len(set.union(*names.values())) == 4
    top = names[0].pop()
    assert [data.class_counts(4)[top] for data in found] == [30, 9, 12]
    assert published.names == ("cluster 0", "cluster 1", "cluster 2", "cluster 3")


@pytest.mark.slow
def test_clusters_that_devices_find_by_themselves_would_not_align():
    """Why centroids are published: the same kind has another number on every second device."""
    one, other = device(3, top=20, left=20)[0], device(4, top=20, left=20)[0]
    found = set()
    for seed in range(6):
        numbers = []
        for number, data in enumerate((one, other)):
            rows = features_of([data], PixelFeatures())[0]
            sums = local_sums(rows, 2, np.random.default_rng((seed, number)))
            left_edge = (sums.sums / sums.counts[:, None])[:, 56]  # bright for "left"
            numbers.append(int(left_edge.argmax()))
        found.add(numbers[0] == numbers[1])
    assert found == {True, False}


def test_a_federated_step_is_lloyds_step_on_all_images_together():
    rng = torch.Generator().manual_seed(0)
    shares = [torch.randn(count, 5, generator=rng) for count in (40, 70, 30)]
    centroids = torch.randn(3, 5, generator=rng)
    sent = [ClusterSums.of(rows, centroids, least=1) for rows in shares]
    together = torch.cat(shares)
    at = torch.cdist(together, centroids).argmin(1)
    expected = torch.stack([together[at == k].mean(0) for k in range(3)])
    torch.testing.assert_close(next_centroids(centroids, sent), expected)


def test_nothing_is_sent_of_a_cluster_with_few_images():
    rows = torch.cat([torch.zeros(LEAST - 1, 2), torch.ones(LEAST, 2)])
    sent = ClusterSums.of(rows, torch.tensor([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]]))
    assert sent.counts.tolist() == [0, LEAST, 0]
    assert sent.sums.tolist() == [[0, 0], [LEAST, LEAST], [0, 0]]
    few = local_sums(torch.rand(LEAST - 1, 2), 3, np.random.default_rng(0))
    assert (len(few.sums), len(few.counts)) == (0, 0)
    stays = torch.tensor([[5.0, 5.0], [1.0, 1.0], [9.0, 9.0]])
    assert next_centroids(stays, [sent]).tolist() == stays.tolist()


def test_what_devices_send_is_sums_and_counts_of_many_images_and_no_more():
    rows = features_of([POPULATION[0][0]], PixelFeatures())[0]
    sent = local_sums(rows, 4, np.random.default_rng(0))
    assert set(vars(sent)) == {"sums", "counts"}
    assert sent.sums.shape == (4, 64)
    assert all(count == 0 or count >= LEAST for count in sent.counts.tolist())


def test_more_clusters_than_kinds_are_refused_with_a_number_that_works():
    rows = torch.cat([torch.zeros(20, 2), torch.ones(20, 2)])
    sent = [local_sums(rows, 3, np.random.default_rng(0))]
    with pytest.raises(InputError, match=r"3 clusters .* 2 different means .* --clusters 2"):
        first_centroids(sent, 3, np.random.default_rng(0))


@pytest.mark.slow
def test_same_seed_same_centroids():
    rows = features_of([data for data, _ in POPULATION], PixelFeatures())
    first, again, other = (federated_centroids(rows, 4, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert {tuple(row) for row in first.round().tolist()} == {
        tuple(row) for row in other.round().tolist()
    }


def test_what_is_published_is_read_as_it_was_sent_and_nonsense_is_refused():
    published = PublishedClusters("pixels 8", torch.rand(3, 64))
    again = PublishedClusters.read(json.loads(json.dumps(published.as_json())))
    assert (again.key, len(again)) == ("pixels 8", 3)
    assert torch.equal(again.centroids, published.centroids)
    for wrong in (
        [], {"key": "k"}, {"key": "k", "centroids": [[1.0], [2.0, 3.0]]},
        {"key": "k", "centroids": [[float("nan")], [0.0]]}, {"key": "k", "centroids": [[1.0]]},
    ):  # fmt: skip
        with pytest.raises(InputError):
            PublishedClusters.read(wrong)


def test_another_extractor_than_the_published_one_is_refused():
    published = PublishedClusters("small-cnn 2cdb", torch.rand(3, 128))
    with pytest.raises(InputError, match="128 features by 'small-cnn 2cdb', and these are 64 by"):
        published.labels(torch.rand(5, 64), "pixels 8")


def test_features_are_the_shipped_networks_where_there_is_one_and_pixels_elsewhere():
    assert features_for("fashion-small").key == f"small-cnn {SHIPPED['fashion'].sha256}"
    assert features_for("folder:x").key == features_for("fashion", "pixels").key == "pixels 8"
    with pytest.raises(ConfigError, match="pixels, small-cnn or efficientnet, got inception"):
        features_for("fashion", "inception")


def test_features_of_shared_images_are_those_of_each_device_alone():
    images = torch.randint(0, 256, (30, 1, 16, 16), dtype=torch.uint8)
    rows = [np.array([3, 7, 7, 20]), np.array([7, 29])]
    shared = features_of([DeviceData.unlabelled(images, each) for each in rows], PixelFeatures())
    alone = [
        features_of([DeviceData.unlabelled(images[torch.from_numpy(each)])], PixelFeatures())[0]
        for each in rows
    ]
    assert all(torch.equal(a, b) for a, b in zip(shared, alone, strict=True))


def test_features_do_not_depend_on_which_images_are_beside_each_other():
    images = torch.randint(0, 256, (230, 1, 28, 28), dtype=torch.uint8)
    extractor = features_for("fashion-small")
    together = own_features(DeviceData.unlabelled(images), extractor)
    for rows in ([7], [229, 0, 3], [*range(101, 230)]):
        mine = DeviceData.unlabelled(images, np.array(rows))
        assert torch.equal(own_features(mine, extractor), together[rows])
    assert own_features(DeviceData.unlabelled(images[:0]), extractor).shape == (0, 128)


@pytest.mark.parametrize("name", ["fashion", "mnist"])
def test_no_image_has_a_larger_feature_than_its_extractor_says(name):
    extractor = features_for(name)
    rng = torch.Generator().manual_seed(0)
    images = (
        torch.rand(200, 1, 28, 28, generator=rng)
        .sign()
        .where(torch.rand(200, 1, 28, 28, generator=rng) < 0.5, torch.tensor(-1.0))
    )
    largest = extractor.features(images).abs().max()
    assert largest <= extractor.most < 1000 * largest


def test_an_extractor_is_found_by_what_was_published_of_it():
    image = (1, 28, 28)
    for data in ("fashion", "mnist", "folder:x"):
        assert published_extractor(features_for(data).key, image).key == features_for(data).key
    for key, told in (
        ("small-cnn 2cdb", "by 'small-cnn 2cdb', which this version of the library does not have"),
        ("pixels 9", "Install the version that the server has"),
        ("inception-v3 " + 64 * "0", "does not have"),
    ):
        with pytest.raises(InputError, match=told):
            published_extractor(key, image)
    with pytest.raises(InputError, match=r"takes images of \(1, 28, 28\), .* are \(3, 32, 32\)"):
        published_extractor(features_for("mnist").key, (3, 32, 32))


def test_sums_are_read_as_they_were_sent():
    rows = features_of([POPULATION[0][0]], PixelFeatures())[0]
    for sent in (local_sums(rows, 3, np.random.default_rng(0)), ClusterSums.of(rows, rows[:4])):
        read = ClusterSums.read("device-1", sent.as_row(4), 4, most=1.0)
        assert torch.equal(read.counts[: len(sent.counts)], sent.counts)
        assert torch.equal(read.sums[: len(sent.sums)], sent.sums)
        assert read.counts.sum() == sent.counts.sum()


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ([LEAST - 1, 0.5, 0.5], f"a sum of 4.0 images for cluster 1. .* at least {LEAST}"),
        ([-8, 0.0, 0.0], "a sum of -8.0 images for cluster 1"),
        ([7.5, 0.0, 0.0], "a sum of 7.5 images for cluster 1"),
        ([MOST_SAMPLES, 0.0, 0.0], "sums of 10000005 images, more than the 10000000"),
        ([1e300, 0.0, 0.0], r"sums of 1e\+300 images, more than the 10000000"),
        ([10, 20.1, 0.0], "a sum for cluster 1 that no 10 images have: .* at most 2 in size"),
        ([10, 0.0, -1e9], "a sum for cluster 1 that no 10 images have"),
        ([0, 0.1, 0.0], "a sum for cluster 1 that no 0 images have"),
    ],
)
def test_sums_that_no_honest_device_sends_are_refused_by_name(cluster, told):
    row = np.array([[5.0, 10.0, -10.0], cluster]).reshape(-1)
    with pytest.raises(InputError, match=f"^device-3 sends {told}"):
        ClusterSums.read("device-3", row, clusters=2, most=2.0)


def test_a_device_declares_by_itself_what_it_declares_among_all():
    given = settings(noise_epsilon=0.5, weak_devices=0.34, public_images="fashion", seed=3)
    devices = [data.relabelled(truth) for data, truth in POPULATION]
    together = declared(devices, 4, given, frozenset())
    for number, data in enumerate(devices):
        assert declared_by(number, data, 4, given) == together.declared(number)
    assert len({together.declared(number).compute for number in range(3)}) == 2


@pytest.mark.slow
def test_clusters_of_clothes_are_mostly_of_one_class_and_labels_play_no_part():
    given = {"devices": 12, "partition": "dirichlet(alpha=0.5)", "clusters": 10, "seed": 1}
    chosen = made(FedganSettings, given)
    devices = devices_of(dataset_for(chosen), chosen)
    found, published = clustered(devices, chosen)
    truth, at = devices[0].labels, found[0].labels
    table = torch.zeros(10, 10).index_put_((at, truth), torch.ones(len(at)), accumulate=True)
    assert table.amax(1).sum() / table.sum() > 0.7  # 0.1 by chance
    blind = [DeviceData.unlabelled(data.images, data.rows) for data in devices]
    again, same = clustered(blind, chosen)
    assert torch.equal(same.centroids, published.centroids)
    assert torch.equal(again[0].labels, at)


@pytest.mark.slow
def test_balanced_sampling_over_clusters_balances_the_true_kinds_as_labels_would():
    rng = np.random.default_rng(5)
    mixed = [
        device(seed, **{kind: int(rng.integers(5, 30)) for kind in rng.choice(KINDS, 2, False)})
        for seed in range(12)
    ]
    by_label = [data.relabelled(truth) for data, truth in mixed]
    by_cluster, _ = clustered([data for data, _ in mixed], settings(devices=12))
    truth = np.array([data.class_counts(4) for data in by_label])
    declared = np.array([data.class_counts(4) for data in by_cluster])
    columns = {tuple(column) for column in truth.T.tolist()}
    assert {tuple(column) for column in declared.T.tolist()} == columns  # numbered otherwise
    gan = gan_for("lsgan(width=0.0625)", (1, 16, 16))

    def divergence(devices, sampling):
        """Of the true kinds that the server has seen through devices, over four rounds."""
        given = settings(devices=12, fraction=0.25, sampling=sampling)
        federation = simulated(gan, devices, classes=4, settings=given)
        seen = np.zeros(4, np.int64)
        found = 0.0
        for _ in range(4):
            seen += truth[list(federation.round().took_part)].sum(axis=0)
            found += float(kl_divergence(seen, truth.sum(axis=0))[0])
        return found

    labels, clusters = divergence(by_label, "balanced"), divergence(by_cluster, "balanced")
    random = divergence(by_cluster, "random")
    assert max(labels, clusters) < random / 2


def test_public_images_fit_the_centroids_and_devices_send_none_of_theirs(tmp_path):
    rng = np.random.default_rng(9)
    for number in range(60):
        Image.fromarray(picture(KINDS[number % 4], rng)).save(tmp_path / f"{number:02}.png")
    given = settings(public_images=f"folder:{tmp_path}")
    assert not given.population.tells_sums
    found, published = clustered([data for data, _ in POPULATION], given)
    other, same = clustered([POPULATION[1][0]], given)
    assert torch.equal(published.centroids, same.centroids)  # whoever takes part
    assert torch.equal(found[1].labels, other[0].labels)
    assert sorted(found[0].class_counts(4)) == [0, 6, 10, 30]
    with pytest.raises(InputError, match=r"Public images are \(1, 28, 28\)"):
        clustered([POPULATION[0][0]], settings(public_images="fashion-small"))


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ConfigError, match="give --clusters too"):
        made(FedganSettings, {"public_images": "fashion"})
    with pytest.raises(ConfigError, match="Give --public-images"):
        settings(noise_epsilon=1.0)
    with pytest.raises(ConfigError, match="each would show sums of its features"):
        settings(secure_aggregation=True)
    assert settings(noise_epsilon=1.0, public_images="fashion").population.clusters == 4
    with pytest.raises(ConfigError, match="clusters must be at least 2"):
        settings(clusters=1)


@pytest.mark.slow
def test_pictures_in_one_folder_train_by_clusters(tmp_path, capsys):
    rng = np.random.default_rng(2)
    (tmp_path / "in").mkdir()
    for number in range(100):
        Image.fromarray(picture(KINDS[number % 4], rng)).save(tmp_path / f"in/{number:03}.png")
    out = tmp_path / "run"
    words = (
        f"--simulate --data folder:{tmp_path}/in --clusters 4 --conditional --devices 3 --fraction "
        "0.67 --partition iid --gan lsgan(width=0.0625) --rounds 2 --local-steps 1 --batch 4 "
        f"--judge none --json --out {out}"
    ).split()
    assert run(["fedgan", "train", *words]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 2
    published = PublishedClusters.read(json.loads((out / "clusters.json").read_text()))
    assert published.centroids.shape == (4, 64)
    began = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    assert began["classes"] == [f"cluster {number}" for number in range(4)]
    assert sorted(began["per_class"]) == [20, 20, 25, 25]  # every tenth is held out
    assert run(["fedgan", "train", "--resume", str(out), "--rounds", "3"]) == 0
    capsys.readouterr()
    assert run(["fedgan", "sample", str(out), "--n", "2", "--label", "cluster 3"]) == 0


@pytest.mark.slow
def test_a_judge_of_classes_is_not_told_clusters_as_classes(tmp_path):
    from garfield.fedgan.judging import GeneratorEvaluation, judge_for

    gan = gan_for("lsgan(width=0.0625)", load("fashion-small").image, classes=14)
    judge = judge_for("fashion-small", cache=tmp_path)
    found = GeneratorEvaluation(judge, n=20, labels_are_classes=False)(
        gan, gan.build(0)[0], last=False
    )
    assert found["classes"] == 10
