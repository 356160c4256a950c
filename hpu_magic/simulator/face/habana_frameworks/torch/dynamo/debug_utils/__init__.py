"""What the compile backend tells about its work."""
