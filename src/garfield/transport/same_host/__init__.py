"""Vectors between processes of one host, in sealed memory that nobody copies."""
