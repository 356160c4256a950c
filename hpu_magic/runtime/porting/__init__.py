"""CUDA code as code for the card: what changes in the text, and what has no counterpart."""
