"""An empty module; the use of a transform raises AttributeError."""
