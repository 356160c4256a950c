"""Jupyter Server extension that shows the machine's cards and their holders, and frees cards.

The cards are read in a child process. The extension never imports torch.
"""
