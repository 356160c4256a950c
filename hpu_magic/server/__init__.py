"""The Jupyter Server extension: the machine's cards, who holds them, and a way to free them.

Reads the cards in a process of its own and never imports torch.
"""
