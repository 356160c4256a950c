"""The project's benchmarks: ``python -m bench`` prints the results and writes build/bench.json."""
