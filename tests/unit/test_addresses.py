"""Where a node listens, and who can reach it there."""

import pytest

from garfield.core.errors import ConfigError
from garfield.transport.addresses import check_address, check_listen, is_loopback


@pytest.mark.parametrize(
    "address", ["10.0.0.2:7000", "[::1]:1", "[fe80::1%eth0]:65535", "node-3.example.org:80"]
)
def test_a_host_and_a_port_are_an_address(address):
    check_address("worker-0", address)


@pytest.mark.parametrize(
    "address",
    ["", ":7000", "10.0.0.2", "10.0.0.2:", "10.0.0.2:0", "10.0.0.2:65536", "10.0.0.2:99999", "a:-1",
     "a:²", "a:1e3", "a b:1", "a\n:1", "::1:7000", "[::1]", "a:1 ", "unix:/x", 7000, None, ["a:1"]],
)  # fmt: skip
def test_nothing_else_is_one(address):
    with pytest.raises(ConfigError, match=r"worker-0 needs an address like .*got"):
        check_address("worker-0", address)


def test_one_can_listen_on_a_port_that_the_system_chooses_and_on_a_path():
    check_listen("worker-0", "127.0.0.1:0")
    check_listen("worker-0", "unix:/tmp/socket")
    with pytest.raises(ConfigError, match=r"a port of 0 to 65535, got '127\.0\.0\.1:99999'"):
        check_listen("worker-0", "127.0.0.1:99999")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "127.8.9.1:7", "[::1]:7", "localhost:1", "unix:/x"]
)
def test_only_this_host_reaches_loopback(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:7", "10.0.0.2:7", "127.evil.example:7", "a:1"]
)
def test_anybody_may_reach_the_rest(address):
    assert not is_loopback(address)
