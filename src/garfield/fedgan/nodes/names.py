"""Names of devices: device-0, device-1 and so on. Without torch, so that a wrong one is told at
once."""

from __future__ import annotations

from garfield.core.errors import ConfigError


def device_number(name: str) -> int:
    """3, of device-3; ConfigError for other names."""
    head, _, tail = name.rpartition("-")
    if head != "device" or not tail.isdecimal():
        raise ConfigError(f"A device is named like device-3, got {name!r}.")
    return int(tail)
