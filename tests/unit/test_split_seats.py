"""How many requests anybody may have under way: by address first, then by confirmed tenant."""

import pytest

from garfield.core.errors import RequestRefused
from garfield.split.server.seats import Seats
from garfield.split.stores import Access

PROXY = "10.0.0.1"


def test_tenants_behind_one_address_do_not_take_each_others_seats():
    seats = Seats(2)
    of_ann = [seats.taken(PROXY), seats.taken(PROXY)]
    for seat in of_ann:
        seat.confirmed("ann")
    of_bob = seats.taken(PROXY)
    of_bob.confirmed("bob")
    third = seats.taken(PROXY)
    with pytest.raises(RequestRefused, match="2 requests of this tenant"):
        third.confirmed("ann")


def test_who_may_read_a_tenants_objects_takes_no_seat_where_the_tenant_is():
    """An account of Swift is its owner's, and of all whom an ACL lets read it."""
    seats = Seats(1)
    seats.taken("192.0.2.7").confirmed("ann")
    seats.taken("192.0.2.8").confirmed("ann")
    with pytest.raises(RequestRefused, match="of this tenant"):
        seats.taken("192.0.2.7").confirmed("ann")


def test_who_is_never_confirmed_stays_one_address_whatever_tokens_it_invents():
    seats = Seats(2)
    held = [seats.taken("192.0.2.7"), seats.taken("192.0.2.7")]
    with pytest.raises(RequestRefused, match="2 requests from this address"):
        seats.taken("192.0.2.7")
    seats.taken("192.0.2.8")
    held[0].leave()
    seats.taken("192.0.2.7")


def test_a_seat_is_given_back_once_as_what_it_counted_for_last():
    seats = Seats(1)
    seat = seats.taken(PROXY)
    seat.confirmed("ann")
    other = seats.taken(PROXY)  # the address is free again
    with pytest.raises(RequestRefused):
        other.confirmed("ann")
    seat.leave()
    other.confirmed("ann")
    other.leave()
    assert not seats.held


def test_a_tenant_refused_keeps_its_addresss_seat_until_it_leaves():
    seats = Seats(1)
    seats.taken(PROXY).confirmed("ann")
    second = seats.taken(PROXY)
    with pytest.raises(RequestRefused):
        second.confirmed("ann")
    with pytest.raises(RequestRefused, match="from this address"):
        seats.taken(PROXY)
    second.leave()
    seats.taken(PROXY)


def signed(key, date="20261119", name="a"):
    credential = f"{key}%2F{date}%2Fus-east-1%2Fs3%2Faws4_request"
    return Access("s3", reads={name: f"https://s3/{name}?X-Amz-Credential={credential}"})


def test_a_tenant_is_an_account_a_key_or_a_token():
    swift = Access("swift", token="AUTH_tk0", account="/v1/AUTH_ann")
    renewed = Access("swift", token="AUTH_tk1", account="/v1/AUTH_ann")
    bob = Access("swift", token="AUTH_tk0", account="/v1/AUTH_bob")
    assert swift.tenant("a") == renewed.tenant("a") != bob.tenant("a")
    assert Access("swift", token="t", account="/v1.0/AUTH_ann").tenant("a") == swift.tenant("a")
    ann, tomorrow = signed("ANN"), signed("ANN", date="20261120")
    assert ann.tenant("a") == tomorrow.tenant("a") != signed("BOB").tenant("a")
    assert signed("ANN/20990101").tenant("a") != ann.tenant("a")  # a key that looks like ours
    one, other = Access("file", token="one"), Access("file", token="other")
    assert one.tenant("a") != other.tenant("a")
    assert len({each.tenant("a") for each in (swift, ann, one)}) == 3
    assert "one" not in one.tenant("a")
