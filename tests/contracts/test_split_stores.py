"""One contract for all stores: files, and a real Swift through its own API and through S3's."""

from __future__ import annotations

import dataclasses
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from garfield.core.errors import AccessDenied, InputError, ObjectMissing, StoreUnreachable
from garfield.split.embedded import EmbeddedSwift
from garfield.split.stores import Access, Store, StoreSettings, open_store
from garfield.split.stores.files import write_tokens

pytestmark = pytest.mark.slow  # Swift starts in seconds

NAMES = ["plain", "part-00000.gpk", "a/b/c.tar", ".garfield/weights/f00.safetensors", "with space",
         "größe", "100%", "a+b", "q?x=1", "hash#1", "tilde~", "semi;colon", "50%25"]  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A kind of store: what its owner opens, what a server opens for the owner, and for others."""

    url: str
    owner: StoreSettings
    server: StoreSettings
    stranger: StoreSettings
    """Somebody known to the store, whose this is not."""


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSwift]:
    with EmbeddedSwift(tmp_path_factory.mktemp("swift")) as running:
        yield running


@pytest.fixture(params=["file", "swift", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        tokens = tmp_path / "tokens.json"
        write_tokens(tokens, {"of-the-owner": ["data"], "of-a-stranger": ["other"]})
        (tmp_path / "data").mkdir()
        server = StoreSettings(file_root=str(tmp_path), file_tokens=str(tokens))
        return Place(
            f"file://{tmp_path}/data/set",
            StoreSettings(file_token="of-the-owner"),
            server,
            StoreSettings(file_token="of-a-stranger"),
        )
    swift: EmbeddedSwift = request.getfixturevalue("swift")
    bucket = "b" + secrets.token_hex(6)
    native = open_store(f"swift://{bucket}", settings=swift.settings("alice"))
    native.put("outside-of-the-prefix", b"x")  # makes the container, too
    return Place(
        f"{request.param}://{bucket}/set/one",
        swift.settings("alice"),
        swift.server_settings(),
        swift.settings("bob"),
    )


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = open_store(place.url, settings=place.owner)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", NAMES)
def test_what_was_put_is_got_whole_by_any_name(store: Store, name: str) -> None:
    data = os.urandom(1000)
    store.put(name, data)
    assert store.get(name) == data
    assert store.size(name) == 1000
    assert store.names() == [name]


def test_a_range_is_cut_where_the_object_ends(store: Store) -> None:
    store.put("x", b"0123456789")
    assert store.get_range("x", 0, 1) == b"0"
    assert store.get_range("x", 3, 4) == b"3456"
    assert store.get_range("x", 8, 100) == b"89"
    assert store.get_range("x", 10, 5) == b""
    with pytest.raises(InputError):
        store.get_range("x", -1, 5)


def test_an_object_is_replaced_and_an_empty_one_is_one(store: Store) -> None:
    store.put("x", b"before, and longer")
    store.put("x", b"after")
    assert store.get("x") == b"after"
    store.put("x", b"")
    assert store.get("x") == b""
    assert store.size("x") == 0


def test_names_are_sorted_relative_and_chosen_by_prefix(store: Store) -> None:
    for name in ("b/2", "a", "b/10", "bb"):
        store.put(name, b"x")
    assert store.names() == ["a", "b/10", "b/2", "bb"]
    assert store.names("b/") == ["b/10", "b/2"]
    assert store.names("b/1") == ["b/10"]
    assert store.names("c") == []


def test_what_is_missing_is_said_by_name(store: Store) -> None:
    for ask in (store.get, store.size, store.delete, lambda name: store.get_range(name, 0, 1)):
        with pytest.raises(ObjectMissing, match="no-such-thing"):
            ask("no-such-thing")


def test_what_was_deleted_is_missing(store: Store) -> None:
    store.put("x", b"1")
    store.delete("x")
    assert store.names() == []
    with pytest.raises(ObjectMissing):
        store.get("x")


@pytest.mark.parametrize(
    "name", ["", "/x", "x/", "../x", "a/../b", "a//b", ".", "a\nb", "a\0b", "x" * 600, "a\\b"]
)
def test_names_that_lead_elsewhere_are_refused(store: Store, name: str) -> None:
    for ask in (store.get, store.size, store.delete, lambda n: store.put(n, b"x")):
        with pytest.raises(InputError):
            ask(name)


def test_many_threads_share_a_store(store: Store) -> None:
    contents = {f"object-{i}": os.urandom(50_000 + i) for i in range(12)}
    for name, data in contents.items():
        store.put(name, data)
    wrong: list[str] = []

    def read(name: str) -> None:
        for _ in range(3):
            if store.get(name) != contents[name]:
                wrong.append(name)

    threads = [threading.Thread(target=read, args=(name,)) for name in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- a server, with a client's rights ----------------------------------------------------------


def test_a_server_reads_what_its_client_may_read(store: Store, place: Place) -> None:
    store.put("part/one two#3", b"0123456789")
    header = store.access(["part/one two#3"]).as_header()
    assert header.isascii()
    assert "\n" not in header
    there = open_store(place.url, Access.from_header(header), place.server)
    assert there.get("part/one two#3") == b"0123456789"
    assert there.get_range("part/one two#3", 2, 3) == b"234"
    assert there.get_range("part/one two#3", 10, 3) == b""
    assert there.size("part/one two#3") == 10


def test_a_server_says_what_is_missing(store: Store, place: Place) -> None:
    there = open_store(place.url, store.access(["gone"]), place.server)
    for ask in (there.get, there.size):
        with pytest.raises(ObjectMissing, match="gone"):
            ask("gone")


def test_a_stranger_reads_nothing_through_a_server(store: Store, place: Place) -> None:
    store.put("secret", b"x")
    access = open_store(place.url, settings=place.stranger).access(["secret"])
    if access.kind == "swift":  # a true token, for an account that is not its owner's
        access = dataclasses.replace(access, account=store.access([]).account)
    with pytest.raises((AccessDenied, ObjectMissing)) as refused:
        open_store(place.url, access, place.server).get("secret")
    if isinstance(refused.value, AccessDenied):
        assert refused.value.status == 403
    else:  # at Swift's S3, buckets of others are not even seen
        assert access.kind == "s3"


def test_a_token_that_nobody_knows_is_refused(store: Store, place: Place) -> None:
    store.put("secret", b"x")
    access = store.access(["secret"])
    if access.kind == "s3":
        signed = access.reads["secret"]
        access = dataclasses.replace(access, reads={"secret": signed[:-4] + "0000"})
    else:
        access = dataclasses.replace(access, token="AUTH_tk" + "0" * 32)
    with pytest.raises(AccessDenied) as refused:
        open_store(place.url, access, place.server).get("secret")
    assert refused.value.status == (403 if access.kind == "s3" else 401)


def test_a_server_without_settings_reads_nothing(store: Store, place: Place) -> None:
    store.put("x", b"x")
    with pytest.raises(AccessDenied) as refused:
        open_store(place.url, store.access(["x"]), StoreSettings()).get("x")
    assert refused.value.status == 401


def test_a_token_of_another_kind_of_store_is_refused(store: Store, place: Place) -> None:
    other = Access("swift", token="t", account="/v1/AUTH_x")
    if place.url.startswith("swift"):
        other = Access("file", token="t")
    with pytest.raises(AccessDenied):
        open_store(place.url, other, place.server)


def test_a_server_writes_where_its_client_may(store: Store, place: Place) -> None:
    there = open_store(place.url, store.access([], writes=["features/1"]), place.server)
    there.put("features/1", b"kept")
    assert store.get("features/1") == b"kept"


# -- what is particular ------------------------------------------------------------------------


def test_s3_and_swift_see_the_same_objects(swift: EmbeddedSwift) -> None:
    native = open_store("swift://both/p", settings=swift.settings("alice"))
    native.put("first", b"x")
    over_s3 = open_store("s3://both/p", settings=swift.settings("alice"))
    for name in NAMES:
        over_s3.put(name, name.encode())
        assert native.get(name) == name.encode()
    assert over_s3.names() == native.names() == sorted([*NAMES, "first"])


def test_a_presigned_get_is_for_its_object_bucket_and_endpoint_only(swift: EmbeddedSwift) -> None:
    settings = swift.settings("alice")
    open_store("swift://mine", settings=settings).put("a", b"a")
    store = open_store("s3://mine", settings=settings)
    store.put("b", b"b")
    signed = store.access(["a"]).reads["a"]

    def ask(url: str, name: str = "a") -> bytes:
        access = Access("s3", reads={name: url})
        return open_store("s3://mine", access, swift.server_settings()).get(name)

    assert ask(signed) == b"a"
    elsewhere = f"127.0.0.1:{swift.ports['proxy']}"
    for url in (
        signed.replace(elsewhere, f"localhost:{swift.ports['object']}"),
        signed.replace(elsewhere, "169.254.169.254"),
        signed.replace(elsewhere, f"x@{elsewhere}"),
        signed.replace("http://", "https://"),
        signed.replace("/mine/a", "/other/a"),
        signed.replace("/mine/a", "/mine/%2e%2e/other/a"),
        signed.replace("/mine/a", "//mine/a"),
        signed.partition("?")[0],
        "file:///etc/passwd",
        "gopher://[",
        "",
    ):
        with pytest.raises(AccessDenied):
            ask(url)
    with pytest.raises(AccessDenied, match="another object"):
        ask(signed, "b")
    another = "X-Amz-Credential=BOB%2F20261119%2Fus-east-1%2Fs3%2Faws4_request"
    for url in (signed.replace("?", f"?{another}&"), f"{signed}&{another}"):
        with pytest.raises(AccessDenied, match="twice"):  # the store may read either, and we too
            ask(url)
    with pytest.raises(AccessDenied, match="no presigned GET"):
        open_store("s3://mine", Access("s3"), swift.server_settings()).get("a")


def test_a_store_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    gone = "http://127.0.0.1:1"
    settings = StoreSettings(
        swift_token="t",
        swift_storage_url=f"{gone}/v1/AUTH_x",
        s3_endpoint=gone,
        s3_access_key="k",
        s3_secret_key="s",
        store_timeout_s=2.0,
    )
    for url in ("swift://c/p", "s3://c/p"):
        with pytest.raises(StoreUnreachable):
            open_store(url, settings=settings).get("x")
    access = Access("s3", reads={"x": f"{gone}/c/p/x?X-Amz-Signature=1"})
    with pytest.raises(StoreUnreachable):
        open_store("s3://c/p", access, settings).get("x")


def test_connections_of_one_account_never_serve_another(swift: EmbeddedSwift) -> None:
    for user in ("alice", "bob", "alice", "bob"):
        store = open_store("swift://same-name", settings=swift.settings(user))
        store.put("whose", user.encode())
    for user in ("alice", "bob"):
        store = open_store("swift://same-name", settings=swift.settings(user))
        assert store.get("whose") == user.encode()


def test_an_expired_token_is_renewed(swift: EmbeddedSwift) -> None:
    from garfield.split.stores import swift as swift_store

    store = open_store("swift://renewed", settings=swift.settings("bob"))
    store.put("x", b"x")
    account = store._account  # type: ignore[attr-defined]
    url, _ = account.get()
    account._held = (url, "AUTH_tk" + "0" * 32)
    assert store.get("x") == b"x"
    assert isinstance(account, swift_store.SwiftAccount)


def test_a_wrong_password_is_refused(swift: EmbeddedSwift) -> None:
    wrong = dataclasses.replace(swift.settings("bob"), swift_key="wrong", s3_secret_key="wrong")
    for url in ("swift://container", "s3://container"):
        with pytest.raises(AccessDenied):
            open_store(url, settings=wrong).get("x")


def test_links_out_of_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    store = open_store(f"file://{tmp_path}/data")
    with pytest.raises(AccessDenied):
        store.get("link")


def test_a_tenant_of_files_cannot_leave_its_directory(tmp_path: Path) -> None:
    (tmp_path / "data" / "mine").mkdir(parents=True)
    (tmp_path / "data" / "theirs").mkdir()
    (tmp_path / "data" / "mine" / "up").symlink_to(tmp_path / "data" / "theirs")
    write_tokens(tmp_path / "tokens", {"t": ["mine"]})
    server = StoreSettings(file_root=str(tmp_path / "data"), file_tokens=str(tmp_path / "tokens"))
    access = Access("file", token="t")
    open_store(f"file://{tmp_path}/data/mine", access, server).put("x", b"x")
    for path in ("data/theirs", "data", "", "data/mine/../theirs", "data/mine/up"):
        with pytest.raises(AccessDenied):
            open_store(f"file://{tmp_path}/{path}", access, server)
