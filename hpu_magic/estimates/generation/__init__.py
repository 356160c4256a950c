"""Text generation: a pass over the prompt, followed by one step per new token, using a KV cache."""
