"""Data sets by name: the shipped ones, those in a data directory, and how they get there."""

import gzip
import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import numpy as np
import pytest

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.data import DATASETS, Dataset, DatasetEntry, digits, fashion_small, load
from garfield.data.download import fetch
from garfield.data.published import DOWNLOADS, Download, PublishedFile
from garfield.data.stored import data_directory
from tools.make_digits import split_digits

RNG = np.random.default_rng(0)
TRAIN, TEST = 6, 4
SMALL = {
    "x_train": RNG.integers(0, 256, (TRAIN, 28, 28), dtype=np.uint8),
    "y_train": RNG.integers(0, 10, TRAIN, dtype=np.uint8),
    "x_test": RNG.integers(0, 256, (TEST, 28, 28), dtype=np.uint8),
    "y_test": RNG.integers(0, 10, TEST, dtype=np.uint8),
}
COLOUR = {
    **SMALL,
    "x_train": RNG.integers(0, 256, (TRAIN * 5, 32, 32, 3), dtype=np.uint8),
    "y_train": RNG.integers(0, 10, TRAIN * 5, dtype=np.uint8),
    "x_test": RNG.integers(0, 256, (TEST, 32, 32, 3), dtype=np.uint8),
}


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def idx_files(arrays=SMALL):
    return {
        "train-images-idx3-ubyte": idx(arrays["x_train"]),
        "train-labels-idx1-ubyte": idx(arrays["y_train"]),
        "t10k-images-idx3-ubyte": idx(arrays["x_test"]),
        "t10k-labels-idx1-ubyte": idx(arrays["y_test"]),
    }


def batch_files(arrays=COLOUR):
    def records(images, labels):
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        return np.concatenate([labels[:, None], planes], axis=1).tobytes()

    parts = zip(np.split(arrays["x_train"], 5), np.split(arrays["y_train"], 5), strict=True)
    files = {f"data_batch_{i}.bin": records(*part) for i, part in enumerate(parts, start=1)}
    return {**files, "test_batch.bin": records(arrays["x_test"], arrays["y_test"])}


def write(folder, contents, *, gzipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if gzipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def assert_holds(data, arrays):
    assert isinstance(data, Dataset)
    for name, array in arrays.items():
        np.testing.assert_array_equal(getattr(data, name), array)


class TestADataset:
    def test_images_come_normalised_with_channels_first(self):
        data = Dataset(**COLOUR, classes=tuple("abcdefghij"), mean=(0.1, 0.2, 0.3), std=(1, 2, 4))
        images = data.images("test")
        assert (images.shape, images.dtype) == ((TEST, 3, 32, 32), np.float32)
        assert images.flags.c_contiguous
        for channel, (mean, std) in enumerate(zip((0.1, 0.2, 0.3), (1, 2, 4), strict=True)):
            expected = (COLOUR["x_test"][..., channel] / 255 - mean) / std
            np.testing.assert_allclose(images[:, channel], expected, atol=1e-6)
        assert data.image == (3, 32, 32)

    def test_some_images_can_be_asked_for(self):
        data = fashion_small()
        some = data.images("train", np.array([5, 3]))
        np.testing.assert_array_equal(some, data.images("train")[[5, 3]])
        assert some.shape == (2, 1, 28, 28)
        assert data.image == (1, 28, 28)

    def test_labels_come_as_int64(self):
        labels = fashion_small().labels("train")
        assert labels.dtype == np.int64
        assert np.bincount(labels).tolist() == [200] * 10

    def test_a_misspelt_split_is_told_the_nearest(self):
        with pytest.raises(UnknownName, match=r"tets is not a split\. Did you mean test"):
            fashion_small().images("tets")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y_test": SMALL["y_test"][1:]}, "test: 4 images need as many"),
            ({"y_train": np.full(TRAIN, 10, np.uint8)}, r"labels run from 10 to 10, .* 0\.\.9"),
            ({"y_train": np.zeros(TRAIN)}, "whole-numbered labels, got float64"),
            ({"x_train": SMALL["x_train"] / 255}, "must be bytes, .* got float64"),
            ({"x_train": SMALL["x_train"].reshape(TRAIN, -1)}, r"got uint8 \(6, 784\)"),
            ({"x_test": SMALL["x_test"][:, :8, :8]}, r"\(28, 28\) in train and \(8, 8\) in test"),
        ],
    )
    def test_arrays_that_do_not_fit_together_are_refused(self, changes, message):
        with pytest.raises(InputError, match=message):
            Dataset(**{**SMALL, **changes}, classes=tuple("abcdefghij"))


class TestTheShippedSets:
    def test_digits_has_30_test_images_of_every_class_and_1497_to_train_on(self):
        data = load("digits")
        assert data.x_train.shape == (1497, 8, 8)
        assert data.x_test.shape == (300, 8, 8)
        assert np.bincount(data.y_test).tolist() == [30] * 10
        assert np.bincount(data.y_train).min() > 140
        assert data.x_train.max() == 255

    def test_digits_are_split_without_overlap_and_keep_all_17_shades(self):
        data = digits()
        images = np.concatenate([data.x_train, data.x_test]).reshape(1797, -1)
        assert len(np.unique(images, axis=0)) == 1797
        assert np.unique(np.rint(images / (255 / 16))).tolist() == list(range(17))

    def test_splitting_digits_keeps_labels_with_their_images(self):
        labels = np.arange(400) % 10
        ink = np.repeat(labels, 64).reshape(400, 8, 8)
        arrays = split_digits(ink, labels)
        assert len(arrays["x_train"]) == 100
        for part in ("train", "test"):
            shown = np.rint(arrays[f"x_{part}"][:, 0, 0] / (255 / 16))
            np.testing.assert_array_equal(shown, arrays[f"y_{part}"])

    def test_digits_are_attributed_beside_the_file(self):
        text = (files("garfield.data") / "digits.LICENSE").read_text(encoding="utf-8")
        for words in ("E. Alpaydin and C. Kaynak", "CC BY 4.0", "Changes:", "BSD 3-Clause"):
            assert words in text

    @pytest.mark.parametrize("name", ["digits", "fashion-small"])
    def test_their_images_are_normalised_to_about_mean_0_and_deviation_1(self, name):
        images = load(name).images("train")
        assert abs(images.mean()) < 0.05
        assert abs(images.std() - 1) < 0.05

    def test_fashion_small_by_name_is_fashion_small(self):
        np.testing.assert_array_equal(load("fashion-small").x_test, fashion_small().x_test)

    def test_what_ships_needs_no_directory(self, tmp_path):
        assert len(load("digits", tmp_path / "nowhere").classes) == 10
        assert [name for name, source in DATASETS.items() if source.ships] == [
            "digits",
            "fashion-small",
        ]

    @pytest.mark.parametrize("name", ["digits", "fashion-small"])
    def test_the_catalogue_tells_the_shape_before_loading(self, name):
        assert DATASETS[name].image == load(name).image


class TestSetsInADirectory:
    @pytest.mark.parametrize("gzipped", [True, False])
    @pytest.mark.parametrize(
        ("name", "folder"),
        [
            ("mnist", "mnist"),
            ("mnist", "MNIST/raw"),
            ("fashion", "fashion-mnist"),
            ("fashion", "FashionMNIST/raw"),
        ],
    )
    def test_idx_files_are_read(self, tmp_path, name, folder, gzipped):
        write(tmp_path / folder, idx_files(), gzipped=gzipped)
        data = load(name, tmp_path)
        assert_holds(data, SMALL)
        assert data.images("train").shape == (TRAIN, 1, 28, 28)

    def test_mnist_is_never_taken_for_fashion(self, tmp_path):
        write(tmp_path / "mnist", idx_files())
        with pytest.raises(InputError, match="fashion is not in"):
            load("fashion", tmp_path)

    @pytest.mark.parametrize("folder", ["cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"])
    def test_binary_batches_of_cifar_are_read(self, tmp_path, folder):
        write(tmp_path / folder, batch_files())
        assert_holds(load("cifar10", tmp_path), COLOUR)

    def test_cifar_as_arrays_is_read(self, tmp_path):
        (tmp_path / "cifar10").mkdir()
        np.savez(tmp_path / "cifar10" / "cifar10.npz", **COLOUR)
        data = load("cifar10", tmp_path)
        assert_holds(data, COLOUR)
        assert data.classes[:2] == ("airplane", "automobile")

    def test_the_argument_beats_the_environment_which_beats_the_cache(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.delenv("GARFIELD_DATA", raising=False)
        assert data_directory() == tmp_path / "home" / ".cache" / "garfield"
        monkeypatch.setenv("GARFIELD_DATA", str(tmp_path / "shared"))
        assert data_directory() == tmp_path / "shared"
        assert data_directory(tmp_path) == tmp_path
        write(tmp_path / "shared" / "mnist", idx_files())
        assert_holds(load("mnist"), SMALL)

    def test_a_set_of_ones_own_is_known_by_name(self, tmp_path):
        def read(root):
            assert root == tmp_path
            return fashion_small()

        DATASETS.add("mine", DatasetEntry("mine", "my images", (1, 28, 28), read))
        try:
            assert len(load("mine", tmp_path).x_test) == 500
        finally:
            DATASETS.remove("mine")

    def test_a_misspelt_name_is_told_the_nearest(self):
        with pytest.raises(UnknownName, match=r"cifar-10 is not a data set\. Did you mean cifar10"):
            load("cifar-10")


class TestWhatIsMissingOrDamaged:
    def test_what_is_not_there_is_said_with_places_and_command(self, tmp_path):
        with pytest.raises(InputError) as raised:
            load("mnist", tmp_path)
        message = str(raised.value)
        assert f"Looked in {tmp_path}/mnist and {tmp_path}/MNIST/raw for train-images" in message
        assert f"garfield data fetch mnist --to {tmp_path}" in message
        assert "storage.googleapis.com" in message

    def test_one_missing_file_is_named(self, tmp_path):
        contents = idx_files()
        del contents["t10k-labels-idx1-ubyte"]
        write(tmp_path / "mnist", contents)
        with pytest.raises(InputError, match=r"/mnist \(which lacks t10k-labels-idx1-ubyte\)"):
            load("mnist", tmp_path)

    def test_the_pickled_version_of_cifar_is_never_opened(self, tmp_path):
        (tmp_path / "cifar-10-batches-py").mkdir()
        with pytest.raises(InputError, match="cifar-10-batches-py is there, but pickled"):
            load("cifar10", tmp_path)

    def test_arrays_that_hold_pickles_are_refused(self, tmp_path):
        (tmp_path / "cifar10").mkdir()
        armed = {**COLOUR, "y_test": np.array([Trap()], dtype=object)}
        np.savez(tmp_path / "cifar10" / "cifar10.npz", **armed)
        with pytest.raises(InputError, match="does not hold the plain arrays"):
            load("cifar10", tmp_path)
        (tmp_path / "cifar10" / "cifar10.npz").write_bytes(pickle.dumps(Trap()))
        with pytest.raises(InputError, match="does not hold the plain arrays"):
            load("cifar10", tmp_path)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda whole: whole[:-1], "should hold 6 bytes, has 5"),
            (lambda whole: whole + b"x", "should hold 6 bytes, has 7"),
            (lambda whole: whole[:6], "ends after 6 bytes, within its header"),
            (lambda whole: b"", "starts with 0x0"),
            (lambda whole: whole[:4] + b"\xff" * 4 + whole[8:], "should hold 4294967295 bytes"),
            (lambda whole: whole[:-1] + b"\x0a", r"mnist: train: labels run .* Get it again"),
            (lambda whole: idx(np.zeros(5, np.uint8)), "train: 6 images need as many"),
        ],
    )
    def test_a_damaged_idx_file_is_refused(self, tmp_path, damage, message):
        contents = idx_files()
        contents["train-labels-idx1-ubyte"] = damage(contents["train-labels-idx1-ubyte"])
        write(tmp_path / "mnist", contents)
        with pytest.raises(InputError, match=message):
            load("mnist", tmp_path)

    def test_a_truncated_gzip_file_is_refused(self, tmp_path):
        write(tmp_path / "mnist", idx_files(), gzipped=True)
        path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
        for content in (path.read_bytes()[:-20], b"not gzip at all"):
            path.write_bytes(content)
            with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte\.gz is damaged"):
                load("mnist", tmp_path)

    def test_images_of_another_size_are_refused(self, tmp_path):
        small = {**SMALL, "x_train": SMALL["x_train"][:, :8], "x_test": SMALL["x_test"][:, :8]}
        write(tmp_path / "mnist", idx_files(small))
        with pytest.raises(InputError, match=r"should be \(1, 28, 28\), got \(1, 8, 28\)"):
            load("mnist", tmp_path)

    @pytest.mark.parametrize("content", [b"", b"x" * 3072])
    def test_a_batch_of_broken_records_is_refused(self, tmp_path, content):
        write(tmp_path / "cifar-10-batches-bin", {**batch_files(), "data_batch_3.bin": content})
        with pytest.raises(InputError, match=r"data_batch_3\.bin has .* not a multiple of 3073"):
            load("cifar10", tmp_path)


class Trap:
    """Fails the test that unpickles it."""

    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


class Site:
    """A web site on loopback that serves what it is told to, and counts requests."""

    def __init__(self):
        self.contents, self.redirects, self.requests = {}, {}, []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.requests.append(self.path)
                if self.path in site.redirects:
                    self.send_response(302)
                    self.send_header("Location", site.redirects[self.path])
                    self.end_headers()
                    return
                if self.path not in site.contents:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(site.contents[self.path])

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def site(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    site = Site()
    yield site
    site.close()


def piece(path, content):
    return PublishedFile(path, len(content), hashlib.sha256(content).hexdigest())


def publish_mnist(site):
    """The four files on the site, and the table that expects them."""
    downloads = []
    for name, content in idx_files().items():
        content = gzip.compress(content)
        site.contents[f"/{name}.gz"] = content
        downloads.append(Download((f"{site.url}/{name}.gz",), piece(f"mnist/{name}.gz", content)))
    return {"mnist": downloads}


def tarred(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for member in members:
            if not isinstance(member, tarfile.TarInfo):
                name, content = member
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                tar.addfile(member)
    return file.getvalue()


def publish_cifar(site, members):
    archive = tarred(members)
    site.contents["/cifar.tar.gz"] = archive
    expected = {
        f"cifar-10-batches-bin/{name}": piece(f"cifar10/cifar-10-batches-bin/{name}", content)
        for name, content in batch_files().items()
    }
    download = Download(
        (f"{site.url}/cifar.tar.gz",), piece("cifar10/cifar.tar.gz", archive), expected
    )
    return {"cifar10": [download]}


def good_members():
    return [(f"cifar-10-batches-bin/{name}", content) for name, content in batch_files().items()]


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestFetching:
    def test_what_is_fetched_can_be_loaded(self, site, tmp_path):
        assert fetch("mnist", tmp_path, downloads=publish_mnist(site)) == tmp_path
        assert_holds(load("mnist", tmp_path), SMALL)
        assert len(tree(tmp_path)) == 4

    def test_a_second_fetch_gets_only_what_is_missing_or_wrong(self, site, tmp_path):
        downloads = publish_mnist(site)
        fetch("mnist", tmp_path, downloads=downloads)
        site.requests.clear()
        fetch("mnist", tmp_path, downloads=downloads)
        assert site.requests == []
        (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
        spoilt = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
        spoilt.write_bytes(spoilt.read_bytes()[::-1])
        fetch("mnist", tmp_path, downloads=downloads)
        assert site.requests == ["/train-labels-idx1-ubyte.gz", "/t10k-labels-idx1-ubyte.gz"]
        assert_holds(load("mnist", tmp_path), SMALL)

    def test_an_archive_is_unpacked_and_removed(self, site, tmp_path):
        downloads = publish_cifar(site, [*good_members(), ("cifar-10-batches-bin/readme", b"hi")])
        fetch("cifar10", tmp_path, downloads=downloads)
        assert_holds(load("cifar10", tmp_path), COLOUR)
        assert tree(tmp_path) == [f"cifar10/cifar-10-batches-bin/{name}" for name in batch_files()]
        site.requests.clear()
        fetch("cifar10", tmp_path, downloads=downloads)
        assert site.requests == []

    @pytest.mark.parametrize(
        "change",
        [
            lambda content: content[:-1],
            lambda content: content + b"x",
            lambda content: content[:-1] + bytes([content[-1] ^ 1]),
            lambda content: b"",
        ],
    )
    def test_other_bytes_than_expected_are_refused_and_leave_nothing(self, site, tmp_path, change):
        downloads = publish_mnist(site)
        path = "/train-images-idx3-ubyte.gz"
        site.contents[path] = change(site.contents[path])
        with pytest.raises(InputError, match=r"mnist/train-images.* could not be fetched"):
            fetch("mnist", tmp_path, downloads=downloads)
        assert tree(tmp_path) == []

    def test_a_file_that_was_right_survives_a_failed_fetch(self, site, tmp_path):
        downloads = publish_mnist(site)
        fetch("mnist", tmp_path, downloads=downloads)
        (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
        site.contents.clear()
        with pytest.raises(InputError, match="404"):
            fetch("mnist", tmp_path, downloads=downloads)
        assert len(tree(tmp_path)) == 3

    def test_the_next_address_is_tried_and_every_failure_told(self, site, tmp_path):
        content = b"right"
        site.contents |= {"/good": content, "/bad": b"wrong"}
        urls = tuple(f"{site.url}/{name}" for name in ("gone", "bad", "good"))
        wanted = piece("set/file", content)
        fetch("set", tmp_path, downloads={"set": [Download(urls, wanted)]})
        assert (tmp_path / "set" / "file").read_bytes() == content
        with pytest.raises(InputError, match=r"/gone: .*404.*; .*/bad: .*sha256"):
            fetch("set", tmp_path / "other", downloads={"set": [Download(urls[:2], wanted)]})

    def test_a_site_that_cannot_be_reached_is_told(self, site, tmp_path):
        site.server.server_close()
        downloads = {"set": [Download((f"{site.url}/x",), piece("x", b"x"))]}
        with pytest.raises(InputError, match="x could not be fetched"):
            fetch("set", tmp_path, downloads=downloads, timeout_s=1.0)

    def test_a_redirect_to_another_scheme_is_refused(self, site, tmp_path):
        site.redirects["/moved"] = "ftp://127.0.0.1:1/x"
        site.redirects["/near"] = f"{site.url}/here"
        site.contents["/here"] = b"x"
        away = Download((f"{site.url}/moved",), piece("x", b"x"))
        with pytest.raises(InputError, match=r"it redirects to ftp://127\.0\.0\.1:1/x, which is"):
            fetch("set", tmp_path, downloads={"set": [away]}, timeout_s=1.0)
        near = Download((f"{site.url}/near",), piece("x", b"x"))
        fetch("set", tmp_path, downloads={"set": [near]})
        assert (tmp_path / "x").read_bytes() == b"x"

    def test_progress_is_reported_up_to_the_whole(self, site, tmp_path):
        content = bytes(600_000)
        site.contents["/big"] = content
        seen = []
        fetch(
            "set",
            tmp_path,
            downloads={"set": [Download((f"{site.url}/big",), piece("big", content))]},
            progress=lambda *report: seen.append(report),
        )
        assert len(seen) > 1
        assert seen[-1] == ("big", 600_000, 600_000)
        assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)

    def test_what_ships_or_is_unknown_is_not_fetched(self, tmp_path):
        with pytest.raises(ConfigError, match="digits comes with the library"):
            fetch("digits", tmp_path)
        with pytest.raises(UnknownName, match=r"minst is not .*fetched\. Did you mean mnist"):
            fetch("minst", tmp_path)

    def test_the_real_addresses_are_https_and_every_stored_set_has_some(self):
        stored = [name for name, source in DATASETS.items() if not source.ships]
        assert sorted(DOWNLOADS) == sorted(stored)
        for download in (each for downloads in DOWNLOADS.values() for each in downloads):
            assert all(url.startswith("https://") for url in download.urls)
            for each in (download.file, *download.files):
                assert len(bytes.fromhex(each.sha256)) == 32
                assert each.size > 4000


def link(name, target, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


class TestHostileArchives:
    @pytest.mark.parametrize(
        "name", ["../escaped", "{outside}/escaped", "cifar-10-batches-bin/../../escaped"]
    )
    def test_names_that_lead_outside_are_not_followed(self, site, tmp_path, name):
        name = name.format(outside=tmp_path)
        downloads = publish_cifar(site, [(name, b"gotcha"), *good_members()])
        fetch("cifar10", tmp_path / "data", downloads=downloads)
        assert len(tree(tmp_path)) == 6
        assert all(file.startswith("data/cifar10/cifar-10-batches-bin/") for file in tree(tmp_path))

    @pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
    def test_an_expected_name_that_is_no_plain_file_is_refused(self, site, tmp_path, kind):
        secret = tmp_path / "secret"
        secret.write_bytes(b"kept")
        name, *_ = good_members()[0]
        downloads = publish_cifar(site, [link(name, str(secret), kind), *good_members()])
        with pytest.raises(InputError, match=r"data_batch_1\.bin is not a plain file"):
            fetch("cifar10", tmp_path / "data", downloads=downloads)
        assert tree(tmp_path) == ["secret"]
        assert secret.read_bytes() == b"kept"

    def test_a_linked_folder_inside_the_archive_is_not_followed(self, site, tmp_path):
        outside = tmp_path / "outside"
        outside.mkdir()
        members = [link("cifar-10-batches-bin", str(outside)), *good_members()]
        fetch("cifar10", tmp_path / "data", downloads=publish_cifar(site, members))
        assert tree(outside) == []

    def test_a_member_larger_than_expected_is_cut_off(self, site, tmp_path):
        members = good_members()
        members[0] = (members[0][0], bytes(10_000_000))
        with pytest.raises(InputError, match=r"data_batch_1\.bin should end after 18438 bytes"):
            fetch("cifar10", tmp_path, downloads=publish_cifar(site, members))
        assert tree(tmp_path) == []

    def test_an_archive_that_lacks_a_member_or_is_none_is_refused(self, site, tmp_path):
        with pytest.raises(InputError, match=r"lacks cifar-10-batches-bin/test_batch\.bin"):
            fetch("cifar10", tmp_path, downloads=publish_cifar(site, good_members()[:-1]))
        download = publish_cifar(site, good_members())["cifar10"][0]
        site.contents["/cifar.tar.gz"] = b"not an archive"
        broken = Download(download.urls, piece("x.tar.gz", b"not an archive"), download.members)
        with pytest.raises(InputError, match="is damaged"):
            fetch("cifar10", tmp_path, downloads={"cifar10": [broken]})


def test_importing_the_data_imports_neither_torch_nor_the_network():
    script = "import sys, garfield.data; print({'torch', 'urllib.request'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
