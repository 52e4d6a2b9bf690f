"""The rule `gang-packing`."""
