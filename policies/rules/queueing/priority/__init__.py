"""The rule `priority`."""
