"""Read and set the execution mode and runtime flags, report the status, and restart the kernel."""
