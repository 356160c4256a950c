"""An empty torchvision, which optimum-habana imports unconditionally.

The module has no distribution metadata. Libraries that first check for metadata therefore run
without torchvision.
"""
