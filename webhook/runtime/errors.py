"""The error that every program reports to its user."""

from __future__ import annotations


class InputError(Exception):
    """Something that the user named cannot be used; the message names it and says why."""
