"""pytest plug-in that imports torchvision from PyPI with any build of the same release of torch.

The wheel's operators need the build of torch on PyPI. If these operators are missing, importing
torchvision fails when it registers fake kernels for them, so this module declares the operators.
Image datasets and transforms do not use these operators.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "operator torchvision::nms does not exist" not in str(error):
        raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
