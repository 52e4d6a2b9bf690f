"""What all programs share: log, lifecycle, times and errors."""
