"""Adapters: a framework's model, and one flat float32 vector."""
