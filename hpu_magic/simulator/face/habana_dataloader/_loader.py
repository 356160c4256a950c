"""``HabanaDataLoader``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from habana_frameworks.mediapipe.plugins.iterator_pytorch import HPUResnetPytorchIterator
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

from habana_dataloader._image_folder import ImageFolderPipe, Unsupported, transforms_of


class HabanaDataLoader(DataLoader):
    """Loads folders of JPEG files with the media pipeline, and other datasets with `DataLoader`.

    The parameters are those of ``torch.utils.data.DataLoader``. The pipeline loads torchvision's
    ``ImageFolder`` with ``drop_last=True``, a random, sequential or distributed sampler, and the
    transforms in ``_image_folder.TRAINING`` or ``EVALUATION``; its batches are on the device.
    Otherwise, a warning reports the reason, and PyTorch loads the batches on the host. The options
    that the pipeline requires are an assumption. Workers and pinned memory have no effect on the
    pipeline. The pipeline uses the seed of a distributed sampler; for other samplers, the seed is
    drawn from the sampler's generator or PyTorch's default generator.
    """

    def __init__(self, dataset: Any, *args: Any, **options: Any) -> None:
        with warnings.catch_warnings():
            # The vendor's examples set num_workers to 8, but the pipeline does not start workers.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            super().__init__(dataset, *args, **options)
        self.iterator: HPUResnetPytorchIterator | None = None
        try:
            self.iterator = HPUResnetPytorchIterator(mediapipe=self._pipe())
        except Unsupported as reason:
            warnings.warn(
                f"HabanaDataLoader falls back to torch.utils.data.DataLoader: {reason}.",
                stacklevel=2,
            )

    def _pipe(self) -> ImageFolderPipe:
        transforms = transforms_of(self.dataset)
        if self.batch_size is None or not self.drop_last:
            raise Unsupported("drop_last is not True, or batch_size is None")
        if self.collate_fn is not torch.utils.data.default_collate:
            raise Unsupported("collate_fn is set")
        slices, sampler = {}, self.sampler
        generator = getattr(sampler, "generator", None)
        if isinstance(sampler, DistributedSampler):
            shuffle, seed = sampler.shuffle, sampler.seed
            slices = {"num_slices": sampler.num_replicas, "slice_index": sampler.rank}
        elif type(sampler) in (RandomSampler, SequentialSampler):
            if len(sampler) != len(self.dataset) or getattr(sampler, "replacement", False):
                raise Unsupported("its sampler does not return each image once")
            shuffle = type(sampler) is RandomSampler
            seed = int(
                torch.randint(2**62, (), generator=generator or self.generator, device="cpu")
            )
        else:
            raise Unsupported(f"its sampler is a {type(sampler).__name__}")
        return ImageFolderPipe(
            self.dataset,
            transforms,
            batch_size=self.batch_size,
            shuffle=shuffle,
            seed=seed,
            **slices,
        )

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return super().__len__() if self.iterator is None else len(self.iterator)

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self.iterator is None else iter(self.iterator)
