"""The project's figures: ``python -m bench`` prints them and writes build/bench.json."""
