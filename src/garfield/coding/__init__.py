"""Codes for redundant gradients (DRACO): who computes what, what is sent, how lies are undone."""

from garfield.coding.code import CODES, Code, Decoded, make_code
from garfield.coding.cyclic import CyclicCode
from garfield.coding.repetition import RepetitionCode

__all__ = ["CODES", "Code", "CyclicCode", "Decoded", "RepetitionCode", "make_code"]
