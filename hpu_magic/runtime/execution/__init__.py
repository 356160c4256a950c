"""The execution mode, runtime flags, device status, and releasing the card."""
