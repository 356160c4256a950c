"""A data module for folders of images, which the vendor's media pipeline decodes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

from hpu_magic.errors import HPUError

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class HPUDataModuleBase:
    """Load folders of JPEG images with the vendor's ``HabanaDataLoader``.

    Needs torchvision. The parameters and their defaults are those of ``lightning_habana``, which
    accepts only ImageNet.

    Parameters
    ----------
    train_dir, val_dir
        Folders with a subfolder per class; `val_dir` is also used for tests.
    num_workers
        Must be 8, the number that the vendor's loader supports.
    normalize
        Has no effect, because the transforms normalize the images.
    seed
        Seed for the order of the images and for the random transforms.
    batch_size
        Images per batch.
    train_transforms, val_transforms
        Sequences of torchvision's transforms: ``RandomResizedCrop``, ``RandomHorizontalFlip``,
        ``ToTensor`` and ``Normalize`` for training; ``Resize``, ``CenterCrop``, ``ToTensor`` and
        ``Normalize`` otherwise. The defaults are those of ResNet.
    pin_memory
        Must be True.
    shuffle
        Must be False: the order of training images is always random.
    drop_last
        Must be True; otherwise, a warning reports that it is set.
    distributed
        Whether each rank loads a different part of the images.
    """

    name = "hpu-dataset"

    def __init__(
        self,
        train_dir: str = "/tmp/data",
        val_dir: str = "/tmp/data",
        num_workers: int = 8,
        normalize: bool = False,
        seed: int = 42,
        batch_size: int = 32,
        train_transforms: Sequence[Any] | None = None,
        val_transforms: Sequence[Any] | None = None,
        pin_memory: bool = True,
        shuffle: bool = False,
        drop_last: bool = True,
        distributed: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.num_workers = num_workers
        self.normalize = normalize
        self.seed = seed
        self.batch_size = batch_size
        self.train_transform = train_transforms
        self.val_transform = val_transforms
        self.pin_memory = pin_memory
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.distributed = distributed

    def setup(self, stage: str | None = None) -> None:
        """Check the options, and list the images of both folders.

        Raises
        ------
        HPUError
            The vendor's loader does not support an option or a transform.
        ModuleNotFoundError
            torchvision or the vendor's loader is not installed.
        """
        self._require("shuffle", self.shuffle, False)
        self._require("pin_memory", self.pin_memory, True)
        self._require("num_workers", self.num_workers, 8)
        if not self.drop_last:
            warnings.warn(
                "HabanaDataLoader supports only drop_last=True for folders of images; it is set to "
                "True.",
                stacklevel=2,
            )
            self.drop_last = True
        _import_loader()
        datasets, transforms = _import_torchvision()
        last = [transforms.ToTensor(), transforms.Normalize(_MEAN, _DEVIATION)]
        training = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *last]
        evaluation = [transforms.Resize(256), transforms.CenterCrop(224), *last]
        self.dataset_train, self.dataset_val = (
            datasets.ImageFolder(folder, transforms.Compose(_supported(name, chosen, known)))
            for name, folder, chosen, known in (
                ("train_transforms", self.train_dir, self.train_transform, training),
                ("val_transforms", self.val_dir, self.val_transform, evaluation),
            )
        )

    @staticmethod
    def _require(name: str, value: Any, needed: Any) -> None:
        if value != needed:
            raise HPUError(
                f"{name}={value!r} is not supported by HabanaDataLoader; pass {name}={needed!r}."
            )

    def train_dataloader(self) -> Any:
        """Return a loader of the training images, in a random order."""
        return self._loader(self.dataset_train, is_training=True)

    def val_dataloader(self) -> Any:
        """Return a loader of the images in `val_dir`."""
        return self._loader(self.dataset_val)

    def test_dataloader(self) -> Any:
        """Return a loader of the images in `val_dir`."""
        return self._loader(self.dataset_val)

    def _loader(self, dataset: Any, is_training: bool = False) -> Any:
        sampler: Any
        if self.distributed:
            sampler = DistributedSampler(dataset, shuffle=is_training, seed=self.seed)
        elif is_training:
            generator = torch.Generator().manual_seed(self.seed)
            sampler = RandomSampler(dataset, generator=generator)
        else:
            sampler = SequentialSampler(dataset)
        return _import_loader()(
            dataset,
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            drop_last=self.drop_last,
        )


def _supported(name: str, chosen: Sequence[Any] | None, known: list[Any]) -> list[Any]:
    """Check and return the chosen transforms, or return `known` if there are none."""
    if chosen is None:
        return known
    for each in chosen:
        if not isinstance(each, tuple(map(type, known))):
            names = ", ".join(type(other).__name__ for other in known)
            raise HPUError(
                f"{name} contains {type(each).__name__}, which HabanaDataLoader does not support; "
                f"use {names}."
            )
    return list(chosen)


def _import_loader() -> Any:
    try:
        from habana_dataloader import HabanaDataLoader
    except ModuleNotFoundError as missing:
        if missing.name != "habana_dataloader":
            raise
        raise ModuleNotFoundError(
            "HPUDataModule needs habana_dataloader, which is not installed: install the vendor's "
            "media loader, or use a LightningDataModule with a DataLoader.",
            name=missing.name,
        ) from missing
    return HabanaDataLoader


def _import_torchvision() -> tuple[Any, Any]:
    try:
        from torchvision import datasets, transforms
    except ModuleNotFoundError as missing:
        if missing.name != "torchvision":
            raise
        raise ModuleNotFoundError(
            "HPUDataModule needs torchvision, which is not installed: run pip install torchvision "
            "(in a notebook, use %pip install).",
            name=missing.name,
        ) from missing
    return datasets, transforms
