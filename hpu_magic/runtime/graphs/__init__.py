"""HPU Graphs: capturing, replaying, and the vendor's wrappers."""
