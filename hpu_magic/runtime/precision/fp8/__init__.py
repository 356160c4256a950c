"""FP8 inference: Neural Compressor first measures a model and then quantizes it."""
