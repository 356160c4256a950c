"""Low-overhead profiler for pipeline stages that run on the host; see `profiler`."""
