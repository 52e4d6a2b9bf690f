"""Certificates of the webhook: issue, inspect, plan a rotation, store."""
