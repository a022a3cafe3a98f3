"""The version of this library, for those who may not import all of it."""

VERSION = "0.1.0"
