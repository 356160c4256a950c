"""Inference in 8-bit floating point: Neural Compressor measures a model, then quantizes it."""
