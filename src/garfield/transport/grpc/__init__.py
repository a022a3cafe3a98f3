"""Nodes in processes of their own, on one host or many, by gRPC."""
