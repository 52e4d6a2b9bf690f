"""Rules on queues, quotas and priorities."""
