"""The decoder, transforms, constants, and operators that call the user's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from habana_frameworks.mediapipe._graph import (
    Operator,
    Settings,
    Value,
    as_tensor,
    generator,
    seed_or_default,
)
from habana_frameworks.mediapipe._images import (
    CropLimits,
    as_planes,
    crop_box,
    decoded,
    filter_of,
    resized,
)
from habana_frameworks.mediapipe.media_types import (
    decoderStage,
    dtype,
    ftype,
    imgtype,
    randomCropType,
    torch_dtype,
)

_CROPS = [kind for name, kind in vars(randomCropType).items() if name.isupper()]
_IMAGE_TYPES = (imgtype.RGB_P, imgtype.RGB_I)


def _planes(value: Value) -> torch.Tensor:
    """Return a batch of images in the order (batch, channels, height, width)."""
    data = value.data
    if not isinstance(data, torch.Tensor) or data.dim() != 4:
        shape = list(data.shape) if isinstance(data, torch.Tensor) else "no tensor"
        raise ValueError(f"A batch of images has four dimensions, got {shape}; decode it first.")
    return data.permute(0, 3, 1, 2) if value.interleaved else data


def _images(planes: torch.Tensor, like: Value) -> Value:
    """Return a batch in the layout of `like`."""
    data = planes.permute(0, 2, 3, 1) if like.interleaved else planes
    return Value(data.contiguous(), like.interleaved)


def _converted(tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """Convert a tensor; floats are rounded and clamped to integers (an assumption)."""
    if tensor.dtype.is_floating_point and not to.is_floating_point:
        limits = torch.iinfo(to)
        tensor = tensor.round().clamp(limits.min, limits.max)
    return tensor.to(to)


class ImageDecoder(Operator):
    """Decodes JPEG files: crops each image, and resizes it to a common size.

    The output is uint8, of shape (batch, 3, height, width), or (batch, height, width, 3) for
    ``RGB_I``. A card decodes images in hardware, so its pixel values differ slightly.

    Parameters
    ----------
    output_format : str
        One of `imgtype`.
    resize : sequence of two int, optional
        Width and height. By default, it is assumed that all images have the same size.
    resampling_mode : str
        One of `ftype`.
    random_crop_type : str
        One of `randomCropType`; the crops are described in ``_images.crop_box``.
    scale_min, scale_max, ratio_min, ratio_max : float
        Limits of random crops; the defaults are those of torchvision (an assumption).
    seed : int, optional
        Seed of random crops.
    decoder_stage : str
        One of `decoderStage`; has no effect.

    Raises
    ------
    ValueError
        An argument is not supported, a file is not a JPEG image, or images differ in size.
    """

    def __init__(
        self,
        *,
        output_format: str = imgtype.RGB_P,
        resize: Sequence[int] | None = None,
        resampling_mode: str = ftype.BI_LINEAR,
        random_crop_type: str = randomCropType.NO_RANDOM_CROP,
        scale_min: float = 0.08,
        scale_max: float = 1.0,
        ratio_min: float = 3 / 4,
        ratio_max: float = 4 / 3,
        seed: int | None = None,
        decoder_stage: str = decoderStage.ENABLE_ALL_STAGES,
        device: str | None = None,
    ) -> None:
        super().__init__(device)
        if output_format not in _IMAGE_TYPES:
            raise ValueError(f"output_format={output_format!r} is unknown; use one of imgtype.")
        if random_crop_type not in _CROPS:
            raise ValueError(
                f"random_crop_type={random_crop_type!r} is unknown; use one of randomCropType."
            )
        if resize is not None and (len(resize) != 2 or min(resize) < 1):
            raise ValueError(f"resize={resize!r} is not a size; pass [width, height].")
        if not (0 < scale_min <= scale_max <= 1 and 0 < ratio_min <= ratio_max):
            raise ValueError(
                f"The limits {scale_min} to {scale_max} of the scale and {ratio_min} to "
                f"{ratio_max} of the ratio are invalid; use increasing positive numbers, and "
                "scales up to 1."
            )
        self._interleaved = output_format == imgtype.RGB_I
        self._size = None if resize is None else (int(resize[0]), int(resize[1]))
        self._filter = filter_of(resampling_mode)
        self._crop = random_crop_type
        self._limits = CropLimits(scale_min, scale_max, ratio_min, ratio_max)
        self._random = generator(seed)

    def compute(self, *values: Value) -> tuple[Value, ...]:
        images = [as_planes(self._image(source)) for source in values[0].data]
        shapes = sorted({(image.shape[2], image.shape[1]) for image in images})
        if len(shapes) > 1:
            raise ValueError(
                f"The images of a batch have different sizes, such as {shapes[0]} and "
                f"{shapes[-1]}; pass resize=[width, height] to ImageDecoder."
            )
        return (_images(torch.stack(images), Value(None, self._interleaved)),)

    def _image(self, source: Any) -> Any:
        image = decoded(source)
        width, height = self._size or image.size
        box = crop_box(image.size, width / height, self._crop, self._limits, self._random)
        if self._size is None:
            return image.crop(box)
        return image.resize(self._size, self._filter, box=box)


class _Crop(Operator):
    """Base class of operators that cut a window from images; `Crop` describes the positions."""

    def __init__(
        self,
        *,
        crop_w: int,
        crop_h: int,
        crop_d: int = 0,
        crop_pos_x: float = 0.0,
        crop_pos_y: float = 0.0,
        device: str | None = None,
    ) -> None:
        super().__init__(device)
        name = type(self).__name__
        if crop_d:
            raise ValueError(f"crop_d={crop_d} of {name} is not supported; remove it.")
        if crop_w < 1 or crop_h < 1:
            raise ValueError(f"The crop of {name} is {crop_w}x{crop_h}; use a positive size.")
        if not (0 <= crop_pos_x <= 1 and 0 <= crop_pos_y <= 1):
            raise ValueError(f"A position of {name} is out of range; use 0 to 1.")
        self._size = crop_w, crop_h
        self._position = crop_pos_x, crop_pos_y

    def _window(self, planes: torch.Tensor) -> torch.Tensor:
        (width, height), (x, y) = self._size, self._position
        rows, columns = planes.shape[2:]
        if width > columns or height > rows:
            raise ValueError(
                f"A crop of {width}x{height} exceeds images of {columns}x{rows}; use a smaller "
                "crop, or resize the images."
            )
        left, upper = int(x * (columns - width)), int(y * (rows - height))
        return planes[:, :, upper : upper + height, left : left + width]


class Crop(_Crop):
    """Cuts a window of ``crop_w`` by ``crop_h`` pixels from each image.

    ``crop_pos_x`` and ``crop_pos_y`` are fractions from 0, the left or upper edge, to 1.
    """

    def compute(self, *values: Value) -> tuple[Value, ...]:
        return (_images(self._window(_planes(values[0])), values[0]),)


class CropMirrorNorm(_Crop):
    """Crops images like `Crop`, and computes ``(image - mean) * std`` in float32.

    The inputs are the images, the mean, and the reciprocal of the standard deviation, which
    broadcast with the images. ``mirror=1`` flips all images horizontally (an assumption), and
    `dtype` is the type of the output.
    """

    inputs = (3,)

    def __init__(self, *, mirror: int = 0, dtype: str = dtype.FLOAT32, **crop: Any) -> None:
        super().__init__(**crop)
        self._mirror = bool(mirror)
        self._dtype = torch_dtype(dtype)

    def compute(self, *values: Value) -> tuple[Value, ...]:
        planes = self._window(_planes(values[0]))
        images = _images(planes.flip(3) if self._mirror else planes, values[0])
        made = (images.data.float() - values[1].data.float()) * values[2].data.float()
        return (Value(_converted(made, self._dtype), images.interleaved),)


class RandomFlip(Operator):
    """Flips the images whose element in the second input is not zero; its shape is (batch,).

    ``horizontal=1`` swaps left and right, and ``vertical=1`` top and bottom.
    """

    inputs = (2,)

    def __init__(
        self, *, horizontal: int = 0, vertical: int = 0, device: str | None = None
    ) -> None:
        super().__init__(device)
        self._dimensions = [3] * bool(horizontal) + [2] * bool(vertical)

    def compute(self, *values: Value) -> tuple[Value, ...]:
        planes, chosen = _planes(values[0]), values[1].data.flatten().bool()
        if len(chosen) != len(planes):
            raise ValueError(
                f"RandomFlip got {len(chosen)} elements for {len(planes)} images; pass one "
                "element per image."
            )
        made = torch.where(chosen[:, None, None, None], planes.flip(self._dimensions), planes)
        return (_images(made, values[0]),)


class Resize(Operator):
    """Resizes images to a width of ``size1`` and a height of ``size2`` pixels.

    `mode` is one of `ftype`. The other parameters of the vendor's operator are not supported.
    """

    def __init__(
        self, *, size1: int, size2: int, mode: str = ftype.LINEAR, device: str | None = None
    ) -> None:
        super().__init__(device)
        filter_of(mode)
        if size1 < 1 or size2 < 1:
            raise ValueError(f"The size {size1}x{size2} of Resize must be positive.")
        self._size, self._mode = (size1, size2), mode

    def compute(self, *values: Value) -> tuple[Value, ...]:
        return (_images(resized(_planes(values[0]), self._size, self._mode), values[0]),)


class Cast(Operator):
    """Converts a tensor to `dtype`; floats are rounded and clamped to integers (an assumption)."""

    def __init__(self, *, dtype: str, device: str | None = None) -> None:
        super().__init__(device)
        self._dtype = torch_dtype(dtype)

    def compute(self, *values: Value) -> tuple[Value, ...]:
        return (Value(_converted(values[0].data, self._dtype), values[0].interleaved),)


class MediaConst(Operator):
    """A constant with the elements of `data`; `shape` starts with the fastest dimension.

    Raises
    ------
    ValueError
        `data` does not have as many elements as the shape.
    """

    inputs = (0,)

    def __init__(
        self, *, data: Any, shape: Sequence[int], dtype: str, device: str | None = None
    ) -> None:
        super().__init__(device)
        found = as_tensor(data, torch_dtype(dtype))
        sizes = [int(size) for size in reversed(list(shape))]
        if found.numel() != np.prod(sizes):
            raise ValueError(
                f"MediaConst has {found.numel()} elements, but its shape is {list(shape)}; pass a "
                "shape with the same number of elements."
            )
        self._value = Value(found.reshape(sizes))

    def compute(self, *values: Value) -> tuple[Value, ...]:
        return (self._value,)


class MediaFunc(Operator):
    """Returns the array that the user's function computes for each batch.

    Parameters
    ----------
    func : type
        A subclass of ``media_function``, which is created with the parameters as a dictionary. The
        key ``unique_number`` is 0 (assumption: it distinguishes functions with the same seed).
    shape : sequence of int
        Shape of the output, with the fastest dimension first.
    dtype : str
        Data type of the output.
    seed : int, optional
        Passed to the function.
    priv_params : dict, optional
        The user's own parameters.

    Raises
    ------
    ValueError
        The array does not have the declared shape.
    """

    inputs = (0,)

    def __init__(
        self,
        *,
        func: type[Any],
        shape: Sequence[int],
        dtype: str,
        seed: int | None = None,
        priv_params: dict[str, Any] | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__(device)
        self._shape = [int(size) for size in reversed(list(shape))]
        self._dtype = torch_dtype(dtype)
        self._name = func.__name__
        self._function = func(
            {
                "func": func,
                "shape": list(shape),
                "dtype": dtype,
                "seed": seed_or_default(seed),
                "unique_number": 0,
                "priv_params": priv_params or {},
            }
        )

    def compute(self, *values: Value) -> tuple[Value, ...]:
        made = as_tensor(self._function(), self._dtype)
        if list(made.shape) != self._shape:
            raise ValueError(
                f"{self._name} returned an array of shape {list(made.shape)}; return the declared "
                f"shape, {self._shape}."
            )
        return (Value(made),)


class MediaExtCpuOp(Operator):
    """Applies an instance of the user's class to the inputs of each batch.

    Parameters
    ----------
    impl : type
        A subclass of ``media_ext_cpu_op_impl``, whose docstring lists the assumptions.
    num_outputs : int
        Number of outputs.
    seed : int, optional
        Passed to `impl`.
    priv_params : dict, optional
        The user's own parameters.

    Raises
    ------
    ValueError
        The instance returned a different number of outputs.
    """

    inputs = tuple(range(9))

    def __init__(
        self,
        *,
        impl: type[Any],
        num_outputs: int = 1,
        seed: int | None = None,
        priv_params: dict[str, Any] | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__(device)
        self.outputs = num_outputs
        self._impl = impl
        self._params = {"seed": seed_or_default(seed), "priv_params": priv_params or {}}

    def prepare(self, settings: Settings) -> None:
        super().prepare(settings)
        self._function = self._impl(self._params, settings)

    def compute(self, *values: Value) -> tuple[Value, ...]:
        arrays = [
            value.data.numpy() if isinstance(value.data, torch.Tensor) else value.data
            for value in values
        ]
        made = self._function(*arrays)
        batch = made if isinstance(made, tuple) else (made,)
        if len(batch) != self.outputs:
            raise ValueError(
                f"{self._impl.__name__} returned {len(batch)} outputs, but num_outputs is "
                f"{self.outputs}; return that many."
            )
        interleaved = bool(values) and values[0].interleaved
        return tuple(Value(as_tensor(each), interleaved) for each in batch)
