"""How much a worker holds beside a batch: known to who reserves memory, and to who uses it."""

AT_ONCE = 8
"""Images that are decoded and transformed together."""

READ = 16 << 20
"""Bytes of an object that are asked for at once."""

ROWS_BYTES = 4 << 20
"""Bytes of rows in one message."""

OBJECTS_HELD = 2
"""Objects that a whole training holds: a batch may end in one and begin in the next."""
