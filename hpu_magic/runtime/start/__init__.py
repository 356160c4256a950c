"""What is known before torch loads, and what is remembered from one kernel to the next."""
