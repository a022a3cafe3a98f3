"""Servers and workers, honest and not: what the applications are made of."""
