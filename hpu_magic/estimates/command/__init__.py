"""The command ``hpu-magic estimate``."""
