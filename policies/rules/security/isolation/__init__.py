"""The rule `isolation`."""
