"""A Flower app whose server survives nodes that lie."""
