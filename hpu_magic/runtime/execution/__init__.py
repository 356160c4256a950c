"""How this process runs on the device: mode, flags, status, release."""
