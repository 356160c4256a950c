"""The cost of operations on a card: published hardware data, fitted constants, and the result."""
