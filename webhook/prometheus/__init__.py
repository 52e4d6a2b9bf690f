"""Read GPU utilisation from Prometheus."""
