"""The vendor's extensions: fused kernels, normalizations, optimizers and moving averages."""
