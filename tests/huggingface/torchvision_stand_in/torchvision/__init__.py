"""What optimum-habana imports of torchvision without a guard; its wheel may not import here.

Without distribution metadata, so that the libraries, which ask for that first, go on without
torchvision wherever they can.
"""
