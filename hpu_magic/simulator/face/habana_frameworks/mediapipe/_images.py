"""Decoding, cropping and resizing with Pillow."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from habana_frameworks.mediapipe.media_types import ftype, randomCropType

_TRIES = 10  # like torchvision's RandomResizedCrop


class CropLimits(NamedTuple):
    """Limits of random crops: the share of the image's area, and the ratio of width to height."""

    scale_min: float
    scale_max: float
    ratio_min: float
    ratio_max: float


def pillow() -> Any:
    """Return Pillow's module ``PIL.Image``.

    Raises
    ------
    ModuleNotFoundError
        Pillow is not installed.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "The media pipeline needs Pillow, which is not installed: run pip install pillow (in a "
            "notebook, use %pip install).",
            name="PIL",
        ) from missing
    return Image


def decoded(source: Any) -> Any:
    """Return a JPEG file, passed as a path or as bytes, as a Pillow image in RGB.

    Raises
    ------
    ValueError
        The file is not a JPEG image.
    """
    encoded = isinstance(source, (bytes, bytearray, memoryview, np.ndarray))
    image_module = pillow()
    try:
        image = image_module.open(io.BytesIO(bytes(source)) if encoded else source)
        if image.format not in ("JPEG", "MPO"):
            raise ValueError(f"its format is {image.format}")
        return image.convert("RGB")
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        name = f"{len(source)} bytes" if encoded else repr(str(source))
        unknown = isinstance(error, image_module.UnidentifiedImageError)
        reason = "unknown format" if unknown else error
        raise ValueError(
            f"ImageDecoder cannot decode {name} ({reason}); pass complete JPEG files."
        ) from error


def filter_of(mode: str) -> Any:
    """Return Pillow's filter for a constant in `ftype`.

    Raises
    ------
    ValueError
        The filter is not supported.
    """
    resampling = pillow().Resampling
    filters = {
        ftype.NEAREST: resampling.NEAREST,
        ftype.LINEAR: resampling.BILINEAR,
        ftype.BI_LINEAR: resampling.BILINEAR,
        ftype.BICUBIC: resampling.BICUBIC,
        ftype.LANCZOS: resampling.LANCZOS,
    }
    if mode not in filters:
        raise ValueError(f"The filter {mode!r} is not supported; use one of media_types.ftype.")
    return filters[mode]


def crop_box(
    size: tuple[int, int],
    ratio: float,
    kind: str,
    limits: CropLimits,
    random: np.random.Generator,
) -> tuple[int, int, int, int]:
    """Return the left, upper, right and lower edges of a crop, in pixels.

    `size` is the width and the height of the image, and `ratio` the output's width divided by its
    height. ``CENTER_CROP`` is the largest region of this ratio in the center, and
    ``RANDOMIZED_ASPECT_RATIO_CROP`` the largest region of a random ratio at a random position (both
    are assumptions). The crop with a random area follows torchvision's ``RandomResizedCrop``.
    """
    width, height = size
    if kind == randomCropType.NO_RANDOM_CROP:
        return 0, 0, width, height
    if kind == randomCropType.CENTER_CROP:
        crop = _largest(size, ratio)
        return _placed(size, crop, 0.5, 0.5)
    if kind == randomCropType.RANDOMIZED_ASPECT_RATIO_CROP:
        crop = _largest(size, _random_ratio(limits, random))
        return _placed(size, crop, random.random(), random.random())
    for _ in range(_TRIES):
        area = width * height * random.uniform(limits.scale_min, limits.scale_max)
        chosen = _random_ratio(limits, random)
        crop = round(math.sqrt(area * chosen)), round(math.sqrt(area / chosen))
        if 0 < crop[0] <= width and 0 < crop[1] <= height:
            return _placed(size, crop, random.random(), random.random())
    crop = _largest(size, min(max(width / height, limits.ratio_min), limits.ratio_max))
    return _placed(size, crop, 0.5, 0.5)


def _random_ratio(limits: CropLimits, random: np.random.Generator) -> float:
    low, high = math.log(limits.ratio_min), math.log(limits.ratio_max)
    return math.exp(random.uniform(low, high))


def _largest(size: tuple[int, int], ratio: float) -> tuple[int, int]:
    """Return the largest width and height of this ratio within `size`."""
    width, height = size
    if width > height * ratio:
        return max(1, round(height * ratio)), height
    return width, max(1, min(height, round(width / ratio)))


def _placed(
    size: tuple[int, int], crop: tuple[int, int], x: float, y: float
) -> tuple[int, int, int, int]:
    """Return the edges of a crop; positions 0 and 1 are the first and the last possible ones."""
    left, upper = round(x * (size[0] - crop[0])), round(y * (size[1] - crop[1]))
    return left, upper, left + crop[0], upper + crop[1]


def as_planes(image: Any) -> torch.Tensor:
    """Return the pixels of an RGB image as a tensor of shape (3, height, width)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def resized(batch: torch.Tensor, size: Sequence[int], mode: str) -> torch.Tensor:
    """Resize a batch of shape (batch, channels, height, width) to a width and a height.

    Each channel is resized in float32, and is rounded and clamped if the batch contains integers.
    """
    width, height = size
    image_module, kind = pillow(), filter_of(mode)
    planes = batch.float().flatten(0, 1).numpy()
    made = [
        np.array(image_module.fromarray(plane).resize((width, height), kind)) for plane in planes
    ]
    found = torch.from_numpy(np.stack(made)).reshape(*batch.shape[:2], height, width)
    if not batch.dtype.is_floating_point:
        limits = torch.iinfo(batch.dtype)
        found = found.round().clamp(limits.min, limits.max)
    return found.to(batch.dtype)
