"""Vectors by UDP, which may lose parts of them."""
