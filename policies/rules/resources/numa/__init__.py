"""The rule `numa`."""
