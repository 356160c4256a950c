"""Debug output from the compile backend."""
