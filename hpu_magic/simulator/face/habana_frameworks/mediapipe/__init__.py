"""A subset of the vendor's media pipeline that decodes and transforms images on the host.

Its source is the vendor's public documentation, as used by lightning-habana's and optimum-habana's
published examples. Docstrings mark as an assumption what these sources leave open. Sizes in
parameters are in the vendor's order, with the fastest dimension first (width, height, channels,
batch); results are tensors in PyTorch's order.
"""
