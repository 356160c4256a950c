"""The Jupyter Server extension, which shows the machine's cards and holders, and frees cards.

A child process reads the cards. The extension never imports torch.
"""
