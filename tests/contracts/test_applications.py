"""One contract for every application: a new one is tested by registering it."""

import math
import re

import pytest

from garfield.apps import APPLICATIONS, Peers, SeveralServers
from garfield.apps.settings import Settings, from_toml
from garfield.core.config import as_toml, read_toml, settings_of
from garfield.core.errors import ConfigError
from garfield.launch.simulate import simulate
from garfield.launch.training import prepare
from tests.command import invoke

pytest.importorskip("torch")

every_application = pytest.mark.parametrize("name", sorted(APPLICATIONS))

TINY = Settings.of(
    model="digits_mlp", data="digits", steps=3, batch=8, evaluate_every=0, test_images=50,
    learning_rate=0.01, simulate=True,
)  # fmt: skip
PLENTY = 20


def has_servers(name):
    kind = type(APPLICATIONS[name])
    return issubclass(kind, SeveralServers) and not issubclass(kind, Peers)


def with_one_liar(name, workers, servers):
    """A run that is to bear one liar of each kind that there is."""
    faults = {"f_workers": 1} | ({"f_servers": 1, "servers": servers} if has_servers(name) else {})
    return TINY.updated(app=name, workers=workers, **faults)


def refusal(settings):
    try:
        settings.check()
    except ConfigError as refused:
        return str(refused)
    return None


def smallest(name):
    """The least workers, and the least servers, that its check admits."""
    workers = next(n for n in range(1, PLENTY) if not refusal(with_one_liar(name, n, PLENTY)))
    if not has_servers(name):
        return workers, 1
    return workers, next(n for n in range(1, PLENTY) if not refusal(with_one_liar(name, PLENTY, n)))


def with_own_changed(name):
    """Settings in which none of the application's own is at its default."""
    changed = {
        setting.name: {str: "another", int: 7, float: 0.5, bool: True}[setting.kind]
        for setting in settings_of(APPLICATIONS[name].own)
    }
    return Settings.of(app=name, **changed)


@every_application
def test_it_has_a_summary_of_one_line(name):
    summary = APPLICATIONS[name].summary
    assert summary.endswith(".")
    assert 20 < len(summary) <= 100
    assert "\n" not in summary


@every_application
def test_its_settings_are_documented_and_frozen(name):
    own = APPLICATIONS[name].own
    assert own.__dataclass_params__.frozen
    assert own.__doc__
    for setting in settings_of(own):
        assert setting.about.endswith("."), setting.name
        assert len(setting.about) > 15, setting.name


@every_application
def test_too_few_nodes_are_refused_with_numbers_before_anything_starts(name):
    workers, servers = smallest(name)
    for n in range(workers):
        assert re.search(r"\d", refusal(with_one_liar(name, n, PLENTY)))
    for n in range(servers if has_servers(name) else 0):
        assert re.search(r"\d", refusal(with_one_liar(name, PLENTY, n)))


@every_application
def test_with_the_fewest_nodes_it_learns(name):
    settings = prepare(with_one_liar(name, *smallest(name)))
    events = []
    servers = simulate(settings, events.append)
    losses = [event["loss"] for event in events if event.get("loss") is not None]
    assert losses
    assert all(map(math.isfinite, losses))
    assert {server.step for server in servers.values()} == {TINY.steps}
    assert min(event["aggregation_s"] for event in events if "aggregation_s" in event) > 0


@every_application
def test_its_settings_survive_the_way_through_a_file_flat_or_in_a_table(name, tmp_path):
    settings, path = with_own_changed(name), tmp_path / "x.toml"
    path.write_text(as_toml(settings.values()))
    assert from_toml(read_toml(path)) == settings
    names = {setting.name for setting in settings_of(APPLICATIONS[name].own)}
    own = {key: value for key, value in settings.values().items() if key in names}
    path.write_text(f'app = "{name}"\n[{name}]\n{as_toml(own)}' if own else f'app = "{name}"\n')
    assert from_toml(read_toml(path)) == settings


@every_application
def test_its_settings_are_refused_elsewhere(name):
    elsewhere = "vanilla" if name != "vanilla" else "ssmw"
    for setting, value in with_own_changed(name).own_values:
        message = refusal(TINY.updated(app=elsewhere, **{setting: value}))
        assert f"{elsewhere} does not use {setting}." in message


@every_application
def test_its_settings_are_in_the_summary(name):
    settings = with_own_changed(name)
    assert APPLICATIONS[name].summary_fields(settings).items() >= dict(settings.own_values).items()


def test_help_shows_the_settings_of_each():
    shown = invoke(["train", "--help"]).stdout
    for name, application in APPLICATIONS.items():
        own = settings_of(application.own)
        assert all(f"{setting.flag} " in shown for setting in own)
        assert (f"Only for {name} " in shown) == bool(own)
