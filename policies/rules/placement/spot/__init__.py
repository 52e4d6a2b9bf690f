"""The rule `spot`."""
