"""The rule `attribution`."""
