"""HPU graphs: capture, replay, and the vendor's wrappers."""
