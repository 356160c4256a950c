"""Conversion of CUDA code to code for the card, with a report of names without counterpart."""
