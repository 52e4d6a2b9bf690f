"""Changing manifests as text: what stays the same is left as it stands, byte for byte."""
