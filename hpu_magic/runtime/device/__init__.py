"""The device, moves to it, and the peak of its memory."""
