"""Generation of text: a pass over the prompt, then a step for each new token over a cache."""
