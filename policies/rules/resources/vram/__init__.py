"""The rule `vram`."""
