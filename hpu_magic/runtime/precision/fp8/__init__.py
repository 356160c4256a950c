"""Inference in 8-bit floating point: measure a model, then quantize it, by Neural Compressor."""
