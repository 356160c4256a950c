"""Debug output of the compile backend."""
