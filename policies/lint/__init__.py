"""Review objects around workloads: quotas, queues, device plugins, exporters and alerts."""
