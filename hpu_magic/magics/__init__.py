"""The IPython magics, one file a family."""
