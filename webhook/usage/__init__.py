"""What Prometheus knows of the GPUs that pods hold, by the series of NVIDIA's dcgm-exporter."""
