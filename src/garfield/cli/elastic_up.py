"""`garfield elastic up`: a cluster of processes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from garfield.cli.elastic_shared import ClusterDirectory, cluster_of
from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import AsJson, ConfigFile, print_json, print_line

if TYPE_CHECKING:
    from pathlib import Path

    from garfield.core.config import Setting
    from garfield.elastic.local.cluster import Cluster
    from garfield.elastic.local.settings import LocalSettings

_TITLES = {"": "Cluster", "periods": "Periods"}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.elastic.local.settings import LocalSettings

    return in_panels(settings_of(LocalSettings), _TITLES.__getitem__)


def _up(
    *,
    given: Annotated[dict[str, Any], Flags(_panels)],
    dir_: ClusterDirectory = None,
    config: ConfigFile = None,
    foreground: Annotated[
        bool, Parameter(help="Stay here until Ctrl-C, which is `down`.", show_default=False)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a cluster of processes on this machine, or start it again.

    Its daemon goes on in the background. Started again, it goes on with the jobs it had: those
    that train on after it was killed are adopted, the others start from their checkpoints. Settings
    that are not given are those of its last start.
    """
    cluster = cluster_of(dir_)
    settings = _settings(cluster, config, given)
    if foreground:
        from garfield.elastic.local.daemon import serve

        serve(cluster.path, settings)
        return
    pid = cluster.start(_words(cluster.path, settings))
    if as_json:
        print_json({"directory": str(cluster.path), "pid": pid, "slots": settings.slots})
        return
    print_line(
        f"{settings.slots} slots under {settings.policy_text}, in {cluster.path} (process {pid}). "
        "Next: garfield elastic submit job.toml"
    )


up = spelt_out(_up)
up.__doc__ = " ".join((_up.__doc__ or "").split())


def _settings(cluster: Cluster, config: Path | None, given: dict[str, Any]) -> LocalSettings:
    """The given settings, then those of the file, then those of the last start."""
    from garfield.core.config import flattened, made, read_toml, settings_of
    from garfield.elastic.local.settings import LocalSettings

    file = flattened(read_toml(config), settings_of(LocalSettings)) if config else {}
    return made(LocalSettings, cluster.last_config() | file | given)


def _words(path: Path, settings: LocalSettings) -> list[str]:
    """The words of `garfield` that run the daemon itself, with all settings and users' files."""
    from garfield.core.config import settings_of, values_of
    from garfield.runs.user_files import loaded

    words = [word for file in loaded() for word in ("--load", str(file))]
    words += ["elastic", "up", "--foreground", "--dir", str(path.absolute())]
    values = values_of(settings)
    for setting in settings_of(type(settings)):
        value = values[setting.name]
        if setting.kind is bool:
            words.append(setting.flag if value else f"--no-{setting.flag[2:]}")
        elif value is not None:
            words.append(f"{setting.flag}={value}")
    return words
