"""The cards of the machine and the processes of a fit."""
