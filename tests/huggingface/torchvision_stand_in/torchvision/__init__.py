"""An empty torchvision, which optimum-habana imports unconditionally.

It has no distribution metadata, so the libraries, which check that first, run without torchvision.
"""
