"""Calculate the cost of operations on a card from published hardware data and fitted constants."""
