"""The rule `gang`."""
