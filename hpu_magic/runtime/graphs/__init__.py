"""HPU Graphs: capture, replay, and the vendor's wrappers."""
