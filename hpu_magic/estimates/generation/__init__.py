"""Text generation: a pass over the prompt, then one step per new token, which uses a cache."""
