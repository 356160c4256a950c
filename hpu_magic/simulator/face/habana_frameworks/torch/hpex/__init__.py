"""The vendor's extensions: fused kernels, normalizations, optimizers and averages of weights."""
