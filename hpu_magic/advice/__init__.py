"""What would make a model train or run faster, by estimates and by what was measured."""
