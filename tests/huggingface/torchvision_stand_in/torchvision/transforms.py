"""An empty module; using a transform raises AttributeError."""
