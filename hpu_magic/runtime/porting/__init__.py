"""Convert CUDA code to code for the card, and report names that have no counterpart."""
