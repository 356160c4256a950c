"""Iterators that return PyTorch tensors."""
