"""A vLLM server on this machine's cards, as a child process of the notebook.

vLLM is never imported here: the server runs in its own process, and its state is read from its
metrics endpoint.
"""
