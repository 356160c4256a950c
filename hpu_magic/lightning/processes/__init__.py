"""The machine's cards and the processes of a fit."""
