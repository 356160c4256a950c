"""Transforms of images: none. A use of one raises AttributeError, which names it."""
