"""An empty torchvision, which optimum-habana imports unconditionally.

The module has no distribution metadata. Libraries that check for metadata first therefore run
without torchvision.
"""
