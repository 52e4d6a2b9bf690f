"""The rule `gang-members`."""
