"""Read manifests from disk, render them, and write them back."""
