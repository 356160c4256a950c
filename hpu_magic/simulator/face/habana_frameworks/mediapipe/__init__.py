"""A subset of the vendor's media pipeline that decodes and transforms images on the host.

The modules follow the vendor's public documentation and the published examples of lightning-habana
and optimum-habana. If these sources do not specify a detail, the docstring marks it as an
assumption. Sizes in parameters are in the vendor's order, with the fastest dimension first (width,
height, channels, batch); results are tensors in PyTorch's order.
"""
