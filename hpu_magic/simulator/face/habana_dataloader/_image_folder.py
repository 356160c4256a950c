"""The media pipeline for torchvision's ``ImageFolder`` and the transforms that it supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from habana_frameworks.mediapipe import fn
from habana_frameworks.mediapipe.media_types import dtype, ftype, imgtype, randomCropType
from habana_frameworks.mediapipe.mediapipe import MediaPipe
from habana_frameworks.mediapipe.operators.cpu_nodes.cpu_nodes import media_function

TRAINING = "RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize"
EVALUATION = "Resize, CenterCrop, ToTensor and Normalize"
_SUPPORTED = (
    ("RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"),
    ("RandomResizedCrop", "ToTensor", "Normalize"),
    ("Resize", "CenterCrop", "ToTensor", "Normalize"),
)


class Unsupported(Exception):
    """Raised if the pipeline cannot load a dataset; the message is a clause with the reason."""


@dataclass(frozen=True)
class Transforms:
    """Transforms of a dataset, by class name."""

    by_name: dict[str, Any]

    @property
    def is_training(self) -> bool:
        """Whether images are cropped at random."""
        return "RandomResizedCrop" in self.by_name


def transforms_of(dataset: Any) -> Transforms:
    """Return the transforms of an ``ImageFolder`` that contains only JPEG files.

    Raises
    ------
    Unsupported
        The dataset's class, its transforms or one of its files is not supported.
    """
    names = {f"{each.__module__}.{each.__name__}" for each in type(dataset).__mro__}
    if "torchvision.datasets.folder.ImageFolder" not in names:
        raise Unsupported(f"the dataset is a {type(dataset).__name__}, not an ImageFolder")
    if dataset.target_transform is not None:
        raise Unsupported("the dataset has a target_transform")
    listed = getattr(dataset.transform, "transforms", [dataset.transform])
    found = tuple(type(each).__name__ for each in listed)
    own = all(type(each).__module__ == "torchvision.transforms.transforms" for each in listed)
    if not own or found not in _SUPPORTED:
        raise Unsupported(
            f"its transforms are {', '.join(found)} instead of {TRAINING}, or {EVALUATION}"
        )
    others = [path for path, _ in dataset.samples if not path.lower().endswith((".jpg", ".jpeg"))]
    if others:
        raise Unsupported(f"{others[0]!r} is not a JPEG file")
    return Transforms(dict(zip(found, listed, strict=True)))


class _Flips(media_function):
    """Chooses images to flip at random, with the transform's probability."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._random = np.random.default_rng(params["seed"])

    def __call__(self) -> Any:
        drawn = self._random.random(self.params["shape"][::-1])
        return (drawn < self.params["priv_params"]["probability"]).astype(np.uint8)


class ImageFolderPipe(MediaPipe):
    """Loads images and labels like lightning-habana's published pipeline for ResNet.

    If the size of ``Resize`` is a single number, images are stretched to a square, as in that
    pipeline; torchvision would keep the aspect ratio. Images are cropped in the same way as by
    ``CenterCrop``.
    """

    def __init__(
        self,
        dataset: Any,
        transforms: Transforms,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        num_slices: int = 1,
        slice_index: int = 0,
    ) -> None:
        super().__init__("mixed", batch_size=batch_size)
        own = transforms.by_name
        self._reader = fn.ReadImageDatasetFromDir(
            file_list=[path for path, _ in dataset.samples],
            class_list=dataset.classes,
            file_classes=[dataset.classes[label] for _, label in dataset.samples],
            shuffle=shuffle,
            seed=seed,
            drop_remainder=True,
            num_slices=num_slices,
            slice_index=slice_index,
        )
        self._flip = self._flips = None
        if transforms.is_training:
            crop = own["RandomResizedCrop"]
            width, height = cropped = _size(crop.size)
            (low, high), (narrow, wide) = crop.scale, crop.ratio
            limits = {"scale_min": low, "scale_max": high, "ratio_min": narrow, "ratio_max": wide}
            kind = randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP
            self._decode = _decoder(cropped, random_crop_type=kind, seed=seed, **limits)
        else:
            self._decode = _decoder(_size(own["Resize"].size))
            width, height = _size(own["CenterCrop"].size)
        if "RandomHorizontalFlip" in own:
            options = {"probability": own["RandomHorizontalFlip"].p}
            self._flips = fn.MediaFunc(
                func=_Flips, shape=[batch_size], dtype=dtype.UINT8, seed=seed, priv_params=options
            )
            self._flip = fn.RandomFlip(horizontal=1)
        normal = own["Normalize"]
        self._mean = _constant(255 * np.asarray(normal.mean))
        self._scale = _constant(1 / (255 * np.asarray(normal.std)))
        self._norm = fn.CropMirrorNorm(
            crop_w=width, crop_h=height, crop_pos_x=0.5, crop_pos_y=0.5, dtype=dtype.FLOAT32
        )

    def definegraph(self) -> Any:
        """Return float32 images of shape (batch, 3, height, width), and labels."""
        jpegs, labels = self._reader()
        images = self._decode(jpegs)
        if self._flip is not None and self._flips is not None:
            images = self._flip(images, self._flips())
        return self._norm(images, self._mean(), self._scale()), labels


def _size(size: Any) -> tuple[int, int]:
    """Return the width and height of a transform's ``size``."""
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes[-1], sizes[0]


def _decoder(size: tuple[int, int], **options: Any) -> Any:
    return fn.ImageDecoder(
        output_format=imgtype.RGB_P, resize=size, resampling_mode=ftype.BI_LINEAR, **options
    )


def _constant(values: Any) -> Any:
    return fn.MediaConst(data=values, shape=[1, 1, len(values)], dtype=dtype.FLOAT32)
