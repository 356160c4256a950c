"""A table of DeepSpeed's features on simulated cards, compared with its CPU accelerator."""
