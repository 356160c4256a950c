"""Low-overhead profiler for the stages that run on the host; see `profiler`."""
