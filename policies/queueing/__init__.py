"""Compare requests with quotas: ResourceQuota, LimitRange and Kueue."""
