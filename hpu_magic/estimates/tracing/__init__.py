"""The operations that a step would run, with shapes, lifetimes and the modules they are of."""
