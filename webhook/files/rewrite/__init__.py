"""Change a manifest in place: all that is not changed stays byte for byte."""
