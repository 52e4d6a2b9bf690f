"""The rule `placement`."""
