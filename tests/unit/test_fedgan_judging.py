"""Judging generated images: distances in their order, labels that say what they are, refusals."""

import dataclasses

import numpy as np
import pytest
import torch

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.data import Dataset, digits, fashion_small
from garfield.fedgan.judging import LabelsBy, judge_for
from garfield.fedgan.judging.classes import ClassCounts, class_divergence, modes_covered
from garfield.fedgan.judging.extractors import extractor_for
from garfield.fedgan.judging.frechet import FeatureStatistics, FeatureSums, frechet_distance
from garfield.fedgan.judging.real_images import RealImages, real_features
from garfield.fedgan.judging.shipped import SHIPPED, load_shipped, unpacked
from garfield.fedgan.judging.small_cnn import accuracy, fit, fresh, in_range


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("judging")


@pytest.fixture(scope="module")
def judge(cache):
    return judge_for("fashion-small", cache=cache)


@pytest.fixture(scope="module")
def clothes():
    """500 real images that the judge has not seen, and their classes."""
    real = RealImages.of(fashion_small(), "test")
    return in_range(real.pixels), real.labels


def noise(count, image=(1, 28, 28)):
    return torch.rand(count, *image, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_real_images_are_near_noise_is_far_and_one_class_is_farther(judge, clothes):
    images, _ = clothes
    real = judge.score(images, few_are_enough=True)
    noisy = judge.score(noise(500), few_are_enough=True)
    boots = judge.score(in_range(judge.real.pixels[judge.real.labels == 9]), few_are_enough=True)
    assert real.fid < noisy.fid / 3
    assert real.fid < boots.fid / 3
    assert (real.modes, boots.modes) == (10, 1)
    assert real.kl < 0.05
    assert boots.kl > 1.8  # log 10 = 2.3 if no boot were taken for another shoe
    assert boots.shares[9] > 0.9


def test_a_label_says_over_what_and_how_few(judge, clothes):
    images, _ = clothes
    assert judge.label(10_000) == "FID (small CNN; only 2,000 real images)"
    found = judge.score(images, few_are_enough=True)
    assert found.label == "FID (small CNN; only 500 generated images; only 2,000 real images)"
    assert (found.n, found.real_n, found.real_split, found.classes) == (500, 2000, "train", 10)
    with pytest.raises(InputError, match=r"At least 5,000 images are needed .* got 500"):
        judge.score(images)


def test_batches_give_what_all_at_once_gives(judge, clothes):
    images, _ = clothes
    whole = judge.score(images, few_are_enough=True)
    pieces = judge.score(iter(images.split(73)), few_are_enough=True)
    assert pieces.fid == pytest.approx(whole.fid, rel=1e-4)
    assert (pieces.modes, pieces.shares) == (whole.modes, whole.shares)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((10, 1, 28, 28), float("nan")), "10 of 10 images hold values that are not fin"),
        (torch.full((10, 1, 28, 28), float("inf")), "not finite, the first of them image 0: the g"),
        (torch.zeros(10, 3, 28, 28), r"must be \(n, 1, 28, 28\) .* got \(10, 3, 28, 28\)"),
        (torch.zeros(10, 784), r"got \(10, 784\)"),
        (torch.zeros(10, 1, 28, 28, dtype=torch.uint8), r"floats in \[-1, 1\], got torch.uint8"),
        (torch.full((10, 1, 28, 28), 255.0), r"must lie in \[-1, 1\], got values from 255 to 255"),
        (torch.zeros(1, 1, 28, 28), "At least 2 images are needed to judge a generator, got 1"),
        ([], "At least 2 images are needed to judge a generator, got 0"),
        ([np.zeros((2, 1, 28, 28))], "must be tensors"),
    ],
)
def test_what_is_no_set_of_such_images_is_refused(judge, images, message):
    with pytest.raises(InputError, match=message):
        judge.score(images, few_are_enough=True)


def test_the_first_broken_image_is_named_wherever_it_is(judge):
    images = torch.zeros(600, 1, 28, 28)
    images[520, 0, 3, 3] = float("nan")
    with pytest.raises(InputError, match=r"1 of 100 images .* image 520"):
        judge.score(images, few_are_enough=True)


def test_images_that_are_all_the_same_have_a_distance_and_one_mode_at_most(judge):
    found = judge.score(torch.zeros(100, 1, 28, 28), few_are_enough=True)
    assert np.isfinite(found.fid)
    assert found.fid > 1
    assert found.modes <= 1


@pytest.mark.slow
def test_a_classifier_learns_from_real_images_and_not_from_noise(judge):
    pixels, labels = judge.real.pixels[:800], judge.real.labels[:800]
    taught = judge.score(
        in_range(pixels), labels=labels, train_classifier=True, few_are_enough=True
    )
    assert taught.labels_by is LabelsBy.GENERATOR
    assert taught.accuracy_trained_on > 0.5
    by_classifier = judge.score(noise(100), train_classifier=True, few_are_enough=True)
    assert by_classifier.labels_by is LabelsBy.CLASSIFIER
    assert by_classifier.accuracy_trained_on < 0.4
    again = judge.score(noise(100), train_classifier=True, few_are_enough=True)
    assert again == by_classifier


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(3, dtype=torch.long), r"500 images need as many .* got torch.int64 \(3,\)"),
        (torch.zeros(500), "got torch.float32"),
        (torch.full((500,), 10), r"run from 10 to 10, not within 0\.\.9"),
    ],
)
def test_labels_that_do_not_fit_are_refused(judge, clothes, labels, message):
    with pytest.raises(InputError, match=message):
        judge.score(clothes[0], labels=labels, few_are_enough=True)


def test_judging_leaves_torchs_random_state_alone(judge, clothes):
    before = torch.random.get_rng_state()
    judge.score(clothes[0][:50], train_classifier=True, few_are_enough=True)
    extractor_for("cifar10")
    assert torch.equal(before, torch.random.get_rng_state())


# ---- what is shipped


def test_shipped_networks_are_small_and_know_their_classes():
    clothes = fashion_small()
    pixels = torch.tensor(clothes.pixels("test")).unsqueeze(1)
    assert accuracy(load_shipped("fashion"), pixels, torch.tensor(clothes.labels("test"))) > 0.87
    assert accuracy(load_shipped("mnist"), *enlarged_digits()) > 0.8
    for network in SHIPPED.values():
        assert network.accuracy > 0.9


def enlarged_digits():
    """The 8×8 digits that are shipped, as MNIST lays its digits out: 20×20 in 28×28."""
    data = digits()
    small = torch.tensor(data.pixels("test")).unsqueeze(1).float()
    large = torch.nn.functional.interpolate(small, (20, 20), mode="bicubic").clamp(0, 255)
    padded = torch.nn.functional.pad(large, (4, 4, 4, 4))
    return padded.round().to(torch.uint8), torch.tensor(data.labels("test"))


def test_an_altered_network_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"mnist.safetensors was altered: .* Install garfield ag"):
        unpacked(SHIPPED["mnist"], b"something else")
    assert len({network.sha256 for network in SHIPPED.values()}) == len(SHIPPED)


def test_a_network_trained_twice_from_a_seed_is_the_same():
    pixels, labels = enlarged_digits()
    twice = [fresh(10, (1, 28, 28), 3) for _ in range(2)]
    for model in twice:
        fit(model, pixels[:100], labels[:100], epochs=1, seed=3)
    first, second = (model.state_dict() for model in twice)
    assert all(torch.equal(first[key], second[key]) for key in first)


# ---- the distance


def gaussian(n, mean, scale, seed=0):
    rng = torch.Generator().manual_seed(seed)
    sums = FeatureSums()
    for rows in (torch.randn(n, len(mean), generator=rng, dtype=torch.float64)).split(500):
        sums.add(rows * torch.tensor(scale) + torch.tensor(mean))
    return sums.statistics()


def exact(mean, covariance):
    return FeatureStatistics(
        100,
        torch.tensor(mean, dtype=torch.float64),
        torch.tensor(covariance, dtype=torch.float64),
    )


def test_the_distance_is_that_of_the_formula():
    one = exact([0.0, 0.0], [[4.0, 0.0], [0.0, 9.0]])
    other = exact([1.0, 2.0], [[1.0, 0.0], [0.0, 16.0]])
    # 1 + 4 for the means; (2-1)² + (3-4)² for the standard deviations
    assert frechet_distance(one, other) == pytest.approx(7.0, abs=1e-9)
    assert frechet_distance(other, one) == pytest.approx(7.0, abs=1e-9)
    assert frechet_distance(one, one) == pytest.approx(0.0, abs=1e-9)


def test_the_distance_of_turned_covariances_equals_that_by_a_matrix_root():
    rng = np.random.default_rng(0)
    a, b = (np.cov(rng.standard_normal((6, 40)) * np.arange(1, 7)[:, None]) for _ in range(2))
    values, vectors = np.linalg.eig(a @ b)
    root = (vectors * np.sqrt(values)) @ np.linalg.inv(vectors)
    expected = np.trace(a + b - 2 * root.real)
    zero = [0.0] * 6
    assert frechet_distance(exact(zero, a), exact(zero, b)) == pytest.approx(expected, rel=1e-9)


def test_features_that_are_constant_do_not_spoil_the_distance():
    dead = exact([0.0, 5.0], [[1.0, 0.0], [0.0, 0.0]])
    assert frechet_distance(dead, exact([0.0, 5.0], [[1.0, 0.0], [0.0, 1.0]])) == pytest.approx(1.0)


def test_sums_lose_nothing_far_from_zero():
    found = gaussian(3000, [1e6, -1e6], [1e-3, 1.0])
    assert found.covariance[0, 0].item() == pytest.approx(1e-6, rel=0.1)
    assert found.n == 3000


def test_distances_of_what_cannot_be_compared_are_refused():
    with pytest.raises(InputError, match="length 2 cannot be compared with features of length 1"):
        frechet_distance(exact([0.0, 0.0], np.eye(2)), exact([0.0], [[1.0]]))
    with pytest.raises(InputError, match="not finite"):
        frechet_distance(exact([float("nan")], [[1.0]]), exact([0.0], [[1.0]]))
    with pytest.raises(InputError, match="at least 2 images, got 0"):
        FeatureSums().statistics()


# ---- classes


def counts(*sure):
    return ClassCounts.of(sum(sure), torch.tensor(sure), torch.tensor(sure))


def test_the_divergence_of_classes_is_zero_for_equal_shares_and_log_of_their_number_for_one():
    even = torch.ones(10)
    assert class_divergence(even * 7, even) == pytest.approx(0.0, abs=1e-12)
    assert class_divergence(torch.eye(10)[3], even) == pytest.approx(np.log(10))
    assert class_divergence(even, torch.eye(10)[3]) == float("inf")
    assert class_divergence(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])) == pytest.approx(
        0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    )
    with pytest.raises(InputError, match="at least one image"):
        class_divergence(torch.zeros(3), torch.ones(3))


def test_a_class_is_covered_from_a_tenth_of_its_real_share():
    real = counts(100, 100, 800)
    assert modes_covered(counts(100, 10, 890), real) == 3
    assert modes_covered(counts(100, 9, 891), real) == 2
    assert modes_covered(counts(0, 0, 1000), real) == 1
    assert modes_covered(counts(1, 1, 998), real, least_share=0.0) == 3
    assert modes_covered(counts(500, 500, 0), counts(500, 500, 0)) == 2  # nobody has the third


def test_images_that_a_classifier_is_unsure_of_cover_nothing():
    seen = ClassCounts(2)
    assert seen.add(torch.tensor([[0.6, 0.4], [0.95, 0.05], [0.3, 0.7]])).tolist() == [0, 0, 1]
    assert (seen.all.tolist(), seen.sure.tolist(), seen.n) == ([2, 1], [1, 0], 3)


# ---- real images and what is kept of them


def test_what_is_kept_is_used_again_and_a_damaged_file_is_not(tmp_path):
    real, calls = RealImages.of(fashion_small(), "test"), []

    class Counting(type(extractor_for("fashion-small"))):
        def features(self, images):
            calls.append(len(images))
            return super().features(images)

    extractor = Counting("fashion")
    first = real_features(real, extractor, tmp_path)
    assert sum(calls) == 500
    second = real_features(real, extractor, tmp_path)
    assert sum(calls) == 500
    assert torch.equal(first.statistics.covariance, second.statistics.covariance)
    assert torch.equal(first.counts.sure, second.counts.sure)
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    third = real_features(real, extractor, tmp_path)
    assert sum(calls) == 1000
    assert torch.equal(first.statistics.mean, third.statistics.mean)
    other = dataclasses.replace(real, pixels=255 - real.pixels)
    assert other.key(extractor) != real.key(extractor)


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path):
    (tmp_path / "file").write_text("no directory")
    made = real_features(
        RealImages.of(fashion_small(), "test"), extractor_for("fashion"), tmp_path / "file/below"
    )
    assert made.statistics.n == 500


def test_test_images_are_taken_where_there_are_enough_of_them():
    def data(train, test):
        return Dataset(
            np.zeros((train, 8, 8), np.uint8), np.zeros(train, np.uint8),
            np.zeros((test, 8, 8), np.uint8), np.zeros(test, np.uint8), ("only",),
        )  # fmt: skip

    assert RealImages.of(data(6000, 5000)).split == "test"
    assert RealImages.of(data(6000, 4999)).split == "train"
    assert RealImages.of(data(100, 200)).split == "test"
    assert len(RealImages.of(data(12_000, 5)).pixels) == 10_000
    with pytest.raises(InputError, match="1 real images cannot be compared with"):
        RealImages.of(data(5, 1), "test")


def test_an_extractor_that_is_not_there_or_lacks_weights_is_explained(tmp_path):
    with pytest.raises(UnknownName, match="Did you mean inception"):
        judge_for("fashion-small", features="inceptoin")
    with pytest.raises(ConfigError, match="needs the path of its weights"):
        judge_for("fashion-small", features="inception")
    with pytest.raises(ConfigError, match="small-cnn has weights of its own"):
        judge_for("fashion-small", features="small-cnn", inception_weights=tmp_path / "x.pth")
    with pytest.raises(ConfigError, match="No small CNN was trained for digits"):
        judge_for("digits", features="small-cnn")
    with pytest.raises(InputError, match="There is no file"):
        judge_for("fashion-small", inception_weights=tmp_path / "x.pth")
