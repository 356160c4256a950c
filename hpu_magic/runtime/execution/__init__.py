"""Execution mode, flags, status of the device, and release of the card."""
