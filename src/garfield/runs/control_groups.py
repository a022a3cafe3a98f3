"""The kernel's control groups, version 1 or 2: where this process is, and groups below that.

Groups are made below the one that this process is in, so whatever limits it keeps limiting what it
starts. What is limited in a group (memory, cores) is its user's matter.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from enum import Enum
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
_REMOVE_S = 2.0


class Version(Enum):
    """Of control groups; a machine may have both."""

    V1 = "cgroup v1"
    V2 = "cgroup v2"


def own_group(
    version: Version, controller: str, mount: Path = MOUNT, table: str = "/proc/self/cgroup"
) -> Path:
    """The directory of the group that this process is in; OSError if it has no such controller."""
    for line in Path(table).read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if version is Version.V1 and controller in controllers.split(","):
            return mount / controller / path.lstrip("/")
        if version is Version.V2 and number == "0" and not controllers:
            group = mount / path.lstrip("/")
            if controller in (group / "cgroup.controllers").read_text().split():
                return group
    raise FileNotFoundError(f"no group with a {controller} controller")


def delegate(group: Path, controller: str) -> None:
    """Let groups below this one have limits: version 2 wants it empty of processes."""
    control = group / "cgroup.subtree_control"
    if controller in control.read_text().split():
        return
    try:
        write(control, f"+{controller}")
    except OSError:
        leaf = group / "garfield-server"
        leaf.mkdir(exist_ok=True)
        write(leaf / "cgroup.procs", os.getpid())
        write(control, f"+{controller}")


def write(path: Path, value: int | str) -> None:
    """Write to a file of a group; OSError says why the kernel refuses."""
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(str(value).encode())


def inner_groups(directory: Path) -> list[Path]:
    """The groups inside a group, if it is still there."""
    with suppress(OSError):
        return [each for each in directory.iterdir() if each.is_dir()]
    return []


def remove(directory: Path) -> None:
    """Remove a group and those inside; left to a later sweep if processes stay in it."""
    deadline = time.monotonic() + _REMOVE_S  # the kernel may take a moment to see that they ended
    for inner in inner_groups(directory):
        remove(inner)
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
