"""Review the objects context workloads: quotas, queues, device plugins, exporters and alerts."""
