"""The Jupyter Server extension, which shows the machine's cards and their holders and frees cards.

It reads the cards in a child process and never imports torch.
"""
