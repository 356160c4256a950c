"""Runs a script on simulated cards that compute nothing, and records what it does.

Operators return results of the right sizes in device memory that uses no host memory. The engine
implements this in ``native/lazy/dry_call.h``. Values that the host reads are stand-ins.
"""
