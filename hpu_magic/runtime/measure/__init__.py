"""What a cell or a fit did on the device: memory, time, profile, ledger, samples."""
