"""Frozen records of cluster objects: what a decision reads of each kind, and nothing else.

Records are made from plain Kubernetes objects. Amounts are whole numbers: bytes, millicores (of ``cpu``), counts.
"""
