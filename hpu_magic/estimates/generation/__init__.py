"""Estimate text generation: a pass over the prompt, then one step per new token with a KV cache."""
