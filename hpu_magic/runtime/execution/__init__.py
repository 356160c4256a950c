"""The execution mode, runtime flags, device status, and the restart that releases the card."""
