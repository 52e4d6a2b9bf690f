"""The error that programs report to their user."""


class InputError(Exception):
    """An input of the user is unusable; the message names it and the reason."""
