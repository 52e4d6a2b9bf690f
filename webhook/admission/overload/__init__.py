"""Bounds on what waits: bodies that arrive, and reviews that are to be decided."""
