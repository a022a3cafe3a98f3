"""Documented dataclasses as settings: flags, TOML, types and clear refusals."""

from dataclasses import dataclass, field

import pytest

from garfield.core.config import (
    NOT_A_SETTING,
    as_toml,
    flattened,
    made,
    read_toml,
    settings_of,
    values_of,
)
from garfield.core.errors import ConfigError, UnknownName


@dataclass(frozen=True)
class Quorum:
    """Who is waited for."""

    timeout_s: float = 10.0
    """How long a round waits,
    in all."""
    peers: tuple[str, ...] = ()
    """Whom it waits for."""


@dataclass(frozen=True)
class Example:
    name: str = "it"
    """What it is called."""
    limit: int | None = None
    """The most, if there is one."""
    loud: bool = False
    """Say more."""
    quorum: Quorum = field(default_factory=Quorum)
    cache: tuple[int, ...] = field(default=(), metadata=NOT_A_SETTING)


def test_every_field_is_a_setting_with_its_group_and_what_is_written_under_it():
    found = {setting.name: setting for setting in settings_of(Example)}
    assert list(found) == ["name", "limit", "loud", "timeout_s", "peers"]
    assert found["timeout_s"].about == "How long a round waits, in all."
    assert found["timeout_s"].flag == "--timeout-s"
    assert (found["name"].group, found["timeout_s"].group) == ("", "quorum")
    assert (found["limit"].kind, found["limit"].optional) == (int, True)


def test_flat_values_make_groups_and_come_back():
    example = made(Example, {"loud": True, "timeout_s": 3, "peers": "a, b", "limit": None})
    assert example == Example(loud=True, quorum=Quorum(3.0, ("a", "b")))
    assert made(Example, values_of(example)) == example


def test_they_survive_the_way_through_a_file(tmp_path):
    example = made(Example, {"name": 'a "b" ü', "limit": 3, "peers": ["x"], "timeout_s": 1e-5})
    path = tmp_path / "x.toml"
    path.write_text(as_toml(values_of(example)), encoding="utf-8")
    assert made(Example, flattened(read_toml(path), settings_of(Example))) == example


def test_a_group_may_be_a_table(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('loud = true\n[quorum]\ntimeout-s = 2\npeers = ["a"]\n')
    found = flattened(read_toml(path), settings_of(Example))
    assert made(Example, found) == Example(loud=True, quorum=Quorum(2.0, ("a",)))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("timeout = 1", "timeout is not a setting. Did you mean timeout_s?"),
        (
            "[quorum]\ntimeout = 1",
            "quorum.timeout is not a setting. Did you mean quorum.timeout_s?",
        ),
        ("[quorom]\ntimeout_s = 1", "quorom is not a group of settings. Did you mean quorum?"),
        ("[quorum]\nloud = true", "quorum.loud is not a setting."),
        ("timeout_s = 1\n[quorum]\ntimeout_s = 1", "timeout_s is given twice"),
        ("cache = [1]", "cache is not a setting"),
        ("limit = 2.0", "limit must be a whole number, got 2.0"),
        ("limit = true", "limit must be a whole number, got True"),
        ("name = 3", "name must be a text, got 3"),
        ("loud = 1", "loud must be true or false, got 1"),
        ("peers = [1]", "peers must be a text or a list of names"),
        ('timeout_s = "1"', "timeout_s must be a number, got '1'"),
        ("timeout_s = = 1", "cannot be read"),
    ],
)
def test_mistakes_are_refused_with_a_remedy(tmp_path, toml, message):
    path = tmp_path / "x.toml"
    path.write_text(toml)
    with pytest.raises(ConfigError) as refused:
        made(Example, flattened(read_toml(path), settings_of(Example)))
    assert message in str(refused.value)


def test_text_of_a_command_line_is_parsed_by_kind():
    found = {setting.name: setting for setting in settings_of(Example)}
    assert found["limit"].parsed("3") == 3
    assert found["timeout_s"].parsed("1e3") == 1000.0
    assert found["peers"].parsed("a,b") == ("a", "b")
    with pytest.raises(ConfigError, match=r"limit must be a whole number, got '3\.5'"):
        found["limit"].parsed("3.5")


def test_what_cannot_be_a_setting_is_told_to_whoever_wrote_it():
    @dataclass(frozen=True)
    class Listed:
        many: list[int] = field(default_factory=list)

    @dataclass(frozen=True)
    class Bare:
        one: int

    @dataclass(frozen=True)
    class Twice:
        timeout_s: float = 1.0
        quorum: Quorum = field(default_factory=Quorum)

    for owner, message in (
        (Listed, "Listed.many cannot be a setting: it is list"),
        (Bare, "Bare.one needs a default"),
        (Twice, "Twice has two settings named timeout_s, in itself and quorum"),
        (int, "int must be a dataclass"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings_of(owner)


def test_an_unknown_name_is_a_key_error_too():
    with pytest.raises(UnknownName):
        made(Example, {"nmae": 1})
