"""A real OpenStack Swift on loopback, for demos and tests: no root, nothing to set up."""

from __future__ import annotations

from garfield.split.embedded.swift import EmbeddedSwift, SwiftUser

__all__ = ["EmbeddedSwift", "SwiftUser"]
