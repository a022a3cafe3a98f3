"""Certificates: one authority, name and role in each, and errors that say what to do."""

import stat
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509

from garfield.core.errors import ConfigError
from garfield.transport.certs import add, load, make
from garfield.transport.identity import Identity, from_dns_names

NODES = {"server-0": "server", "worker-0": "worker", "worker-1": "worker"}


@pytest.fixture
def made(tmp_path):
    make(tmp_path / "certs", NODES)
    return tmp_path / "certs"


def test_every_node_gets_its_own_certificate_with_name_and_role(made):
    for name, role in NODES.items():
        own = load(made, name)
        assert own.identity == Identity(name, role)
        assert own.authority == (made / "ca.pem").read_bytes()
        certificate = x509.load_pem_x509_certificate(own.certificate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [f"{name}.{role}.garfield"]


def test_keys_are_for_their_owner_only_and_not_shown(made):
    for name in (*NODES, "ca"):
        assert stat.S_IMODE((made / f"{name}.key").stat().st_mode) == 0o600
    assert "PRIVATE" not in repr(load(made, "worker-0"))


def test_only_the_authority_can_sign(made):
    for name, can_sign in (("ca", True), ("worker-0", False)):
        certificate = x509.load_pem_x509_certificate((made / f"{name}.pem").read_bytes())
        basics = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert basics.critical
        assert basics.value.ca is can_sign


@pytest.mark.parametrize("file", ["ca.pem", "worker-0.pem", "worker-0.key"])
def test_a_missing_file_is_named_with_the_remedy(made, file):
    (made / file).unlink()
    with pytest.raises(ConfigError, match=rf"{file} cannot be read: No such file.*Make"):
        load(made, "worker-0")


def test_another_nodes_certificate_is_refused(made):
    (made / "worker-0.pem").write_bytes((made / "worker-1.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"worker-0.pem is the certificate of worker-1"):
        load(made, "worker-0")
    (made / "worker-0.pem").write_bytes((made / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"worker-0.pem is the certificate of no node"):
        load(made, "worker-0")


def test_a_key_must_belong_to_its_certificate(made):
    (made / "worker-0.key").write_bytes((made / "worker-1.key").read_bytes())
    with pytest.raises(ConfigError, match="are no pair"):
        load(made, "worker-0")


def test_a_certificate_of_another_authority_is_refused(made, tmp_path):
    make(tmp_path / "others", NODES)
    (made / "ca.pem").write_bytes((tmp_path / "others" / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"was not made by .*ca.pem"):
        load(made, "worker-0")


def test_garbage_is_refused(made):
    (made / "worker-0.pem").write_text("garbage")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(made, "worker-0")


def test_dates_are_checked(tmp_path):
    now = datetime(2030, 1, 1, tzinfo=timezone.utc)
    make(tmp_path, NODES, valid_days=2, now=now)
    assert load(tmp_path, "worker-0", now=now + timedelta(days=1)).identity.name == "worker-0"
    with pytest.raises(ConfigError, match=r"expired on 2030-01-03 00:00 UTC\. Make"):
        load(tmp_path, "worker-0", now=now + timedelta(days=3))
    with pytest.raises(ConfigError, match=r"valid from .*Set this host's clock"):
        load(tmp_path, "worker-0", now=now - timedelta(days=1))


@pytest.mark.parametrize("days", [float("nan"), float("inf"), 1e9, 0, -1, 1e-9])
def test_days_that_no_certificate_can_hold_are_refused(tmp_path, days):
    with pytest.raises(ConfigError, match=r"valid for up to 36500 days.* got .*365 is usual"):
        make(tmp_path / "certs", NODES, valid_days=days)
    assert not (tmp_path / "certs").exists()


def test_the_most_days_are_possible(tmp_path):
    make(tmp_path, NODES, valid_days=36_500)
    assert load(tmp_path, "worker-0").identity.name == "worker-0"


@pytest.mark.parametrize("inside", ["", "x"])
def test_a_place_that_cannot_be_written_to_is_named(tmp_path, inside):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written to .*file.*Choose another"):
        make(tmp_path / "file" / inside, NODES)


def test_an_authority_is_never_overwritten(made):
    before = (made / "ca.key").read_bytes()
    with pytest.raises(ConfigError, match="holds an authority already"):
        make(made, NODES)
    assert (made / "ca.key").read_bytes() == before


def test_a_node_that_joins_gets_a_certificate_and_the_others_keep_theirs(made):
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    add(made, {"worker-2": "worker"})
    assert load(made, "worker-2").identity == Identity("worker-2", "worker")
    assert stat.S_IMODE((made / "worker-2.key").stat().st_mode) == 0o600
    for name, content in before.items():
        assert (made / name).read_bytes() == content
    assert len(list(made.iterdir())) == len(before) + 2


def test_one_that_has_a_certificate_keeps_it_and_nobody_gets_one(made):
    before = (made / "worker-1.pem").read_bytes()
    with pytest.raises(ConfigError, match=r"worker-1 has .*worker-1.pem already.*Remove it first"):
        add(made, {"worker-2": "worker", "worker-1": "worker"})
    assert (made / "worker-1.pem").read_bytes() == before
    assert not (made / "worker-2.pem").exists()


def test_what_is_added_does_not_outlive_its_authority(tmp_path):
    now = datetime(2030, 1, 1, tzinfo=timezone.utc)
    make(tmp_path, NODES, valid_days=10, now=now)
    end = add(tmp_path, {"worker-2": "worker"}, valid_days=365, now=now + timedelta(days=9))
    assert end == now + timedelta(days=10)
    with pytest.raises(ConfigError, match="expired"):
        add(tmp_path, {"worker-3": "worker"}, now=now + timedelta(days=11))


def test_nothing_can_be_added_without_the_authoritys_own_key(made, tmp_path):
    make(tmp_path / "others", NODES)
    (made / "ca.key").write_bytes((tmp_path / "others" / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match=r"ca.key and ca.pem .* are no pair"):
        add(made, {"worker-2": "worker"})
    (made / "ca.key").unlink()
    with pytest.raises(ConfigError, match=r"ca.key cannot be read"):
        add(made, {"worker-2": "worker"})


@pytest.mark.parametrize(
    "name", ["", "a.b", "Worker", "-a", "a-", "a b", "../x", "x" * 64, "*", "ca"]
)
def test_names_that_could_mean_something_else_are_refused(tmp_path, name):
    with pytest.raises(ConfigError):
        make(tmp_path / "certs", {name: "worker"})
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["worker-0.worker.example"],
        ["worker-0.garfield"],
        ["a.worker-0.worker.garfield"],
        ["*.worker.garfield"],
        ["worker-0..garfield"],
        ["worker-0.worker.garfield", "server-0.server.garfield"],
    ],
)
def test_a_certificate_names_exactly_one_node(names):
    assert from_dns_names(names) is None


def test_other_names_beside_a_nodes_own_do_not_matter():
    names = ["localhost", "worker-0.worker.garfield"]
    assert from_dns_names(names) == Identity("worker-0", "worker")
