"""Constants of the media pipeline.

The names come from published examples. The values are an assumption: data types are NumPy's names,
which the examples pass to NumPy.
"""

from __future__ import annotations

import torch


class dtype:
    """Data types of tensors; ``NDT`` is a list of encoded files, which is not a tensor."""

    NDT = "ndt"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class imgtype:
    """Layouts of decoded images: planes of colors (``RGB_P``) or interleaved colors (``RGB_I``)."""

    RGB_P = "rgb-p"
    RGB_I = "rgb-i"


class layout:
    """Orders of the dimensions in a batch of images (assumption: the same as in `imgtype`)."""

    NA = ""
    NCHW = "nchw"
    NHWC = "nhwc"


class ftype:
    """Filters for resizing."""

    NEAREST = "nearest"
    LINEAR = "linear"
    BI_LINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class randomCropType:
    """Ways in which `fn.ImageDecoder` crops an image before resizing it."""

    NO_RANDOM_CROP = "no_random_crop"
    CENTER_CROP = "center_crop"
    RANDOMIZED_ASPECT_RATIO_CROP = "randomized_aspect_ratio_crop"
    RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP = "randomized_area_and_aspect_ratio_crop"


class decoderStage:
    """Stages of the hardware decoder; the simulator always decodes in one stage."""

    ENABLE_ALL_STAGES = "enable_all_stages"
    ENABLE_SINGLE_STAGE = "enable_single_stage"
    ENABLE_TWO_STAGES = "enable_two_stages"


class readerOutType:
    """The output of a reader for each image: the path or the bytes of the file."""

    FILE_LIST = "file_list"
    BUFFER_LIST = "buffer_list"
    ADDRESS_LIST = "address_list"


def torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's data type for a constant in `dtype`.

    Assumption: unsigned integers of more than 8 bits become signed integers of the same size,
    because cards do not compute with them.

    Raises
    ------
    ValueError
        `name` is not a tensor data type.
    """
    signed = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}
    found = getattr(torch, signed.get(name, name), None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is not a tensor data type; use one of media_types.dtype.")
    return found
