"""A table of vLLM's features on simulated cards, compared with transformers on the CPU."""
