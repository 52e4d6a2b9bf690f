"""Kubernetes' own vocabulary: field paths, quantities, labels, taints, images and times."""
