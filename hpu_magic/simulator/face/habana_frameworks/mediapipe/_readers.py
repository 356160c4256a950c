"""Readers for image folders, COCO files and the user's own data."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from habana_frameworks.mediapipe._graph import Reader, Settings, Value, as_tensor, seed_or_default
from habana_frameworks.mediapipe.media_types import dtype, torch_dtype

_SUFFIXES = {"jpg": (".jpg", ".jpeg"), "jpeg": (".jpg", ".jpeg")}
_MAX_BOXES = 200


class Order(NamedTuple):
    """How a reader selects and orders its samples; see `ReadImageDatasetFromDir`."""

    num_slices: int
    slice_index: int
    shuffle: bool
    drop_remainder: bool
    pad_remainder: bool
    seed: int


class _SampleReader(Reader):
    """A reader of samples that are known in advance.

    All slices have the same number of samples: if the samples cannot be divided evenly, the first
    ones are repeated. Each epoch shuffles the samples of a slice differently.
    """

    def __init__(self, samples: int, order: Order, device: str | None) -> None:
        super().__init__(device)
        name = type(self).__name__
        if not samples:
            raise ValueError(f"{name} found no images; check its folder and its format.")
        if not 0 <= order.slice_index < order.num_slices:
            raise ValueError(
                f"slice_index={order.slice_index} of {name} is out of range; "
                f"use 0 to {order.num_slices - 1}."
            )
        count = math.ceil(samples / order.num_slices)
        indices = order.slice_index + order.num_slices * np.arange(count)
        self._slice = indices % samples
        self._order = order
        self._epoch = -1
        self._next = 0
        self._ordered = self._slice

    def __len__(self) -> int:
        full, rest = divmod(len(self._slice), self.settings.batch_size)
        return full + bool(rest and not self._order.drop_remainder)

    def start(self) -> None:
        self._epoch += 1
        self._next = 0
        self._ordered = self._slice
        if self._order.shuffle:
            random = np.random.default_rng([self._order.seed, self._epoch])
            self._ordered = random.permutation(self._slice)

    def _batch(self) -> tuple[list[int], int]:
        """Return the samples of the next batch, and how many of them are not padding."""
        if self._next >= len(self):
            raise StopIteration
        size = self.settings.batch_size
        chosen = self._ordered[self._next * size : (self._next + 1) * size].tolist()
        self._next += 1
        filling = [chosen[-1]] if self._order.pad_remainder else self._ordered.tolist()
        missing = range(size - len(chosen))
        return chosen + [filling[index % len(filling)] for index in missing], len(chosen)


class ReadImageDatasetFromDir(_SampleReader):
    """Reads JPEG files and their labels; each subfolder of a folder is a class.

    Outputs: encoded images (``NDT``), and labels of shape (batch,).

    Parameters
    ----------
    dir : str, optional
        Folder with a subfolder per class; labels are the indices of the sorted subfolders.
    format : str
        ``"jpg"`` or ``"JPEG"``, case-insensitive; both read ``.jpg`` and ``.jpeg`` (an assumption).
    file_list, class_list, file_classes : sequences of str
        Used instead of `dir`: the paths, the class names, and the class of each path.
    num_slices, slice_index : int
        Number of readers that share the files, and the index of this one.
    shuffle : bool
        Whether to shuffle the files in each epoch.
    seed : int, optional
        Seed for shuffling.
    drop_remainder : bool
        Whether to drop an incomplete batch.
    pad_remainder : bool
        Whether to fill an incomplete batch with its last image; otherwise, it is filled with the
        first images of the epoch (an assumption).
    label_dtype : str
        Data type of the labels.
    max_file : str, optional
        Path of the largest file; the simulator ignores it.

    Raises
    ------
    ValueError
        There are no images, or an argument is invalid.
    """

    outputs = 2

    def __init__(
        self,
        *,
        dir: str | os.PathLike[str] | None = None,
        format: str = "JPEG",
        file_list: Sequence[str] = (),
        class_list: Sequence[str] = (),
        file_classes: Sequence[str] = (),
        num_slices: int = 1,
        slice_index: int = 0,
        shuffle: bool = True,
        seed: int | None = None,
        drop_remainder: bool = False,
        pad_remainder: bool = False,
        label_dtype: str = dtype.UINT32,
        max_file: str | None = None,
        device: str | None = None,
    ) -> None:
        if format.lower() not in _SUFFIXES:
            raise ValueError(f"format={format!r} is not supported; use 'jpg' or 'JPEG'.")
        if len(file_list):
            self._files, self._labels = _listed(file_list, class_list, file_classes)
        elif dir is not None:
            self._files, self._labels = _found(Path(dir), _SUFFIXES[format.lower()])
        else:
            raise ValueError("ReadImageDatasetFromDir has no images; pass dir or file_list.")
        self._label_dtype = torch_dtype(label_dtype)
        order = Order(
            num_slices, slice_index, shuffle, drop_remainder, pad_remainder, seed_or_default(seed)
        )
        super().__init__(len(self._files), order, device)

    def compute(self) -> tuple[Value, ...]:
        chosen, _ = self._batch()
        labels = torch.tensor([self._labels[index] for index in chosen], dtype=self._label_dtype)
        return Value([self._files[index] for index in chosen]), Value(labels)


def _found(folder: Path, suffixes: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Return the paths of the images in all class folders, and their labels."""
    if not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} is not a folder; pass a folder with a subfolder per class."
        )
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    found = [
        (str(path), label)
        for label, each in enumerate(classes)
        for path in sorted(each.rglob("*"))
        if path.suffix.lower() in suffixes
    ]
    return [path for path, _ in found], [label for _, label in found]


def _listed(
    files: Sequence[str], classes: Sequence[str], classes_of_files: Sequence[str]
) -> tuple[list[str], list[int]]:
    if len(files) != len(classes_of_files):
        raise ValueError(
            f"file_list has {len(files)} files, but file_classes has {len(classes_of_files)} "
            "classes; pass one class per file."
        )
    labels = {name: label for label, name in enumerate(classes)}
    unknown = sorted(set(classes_of_files) - labels.keys())
    if unknown:
        raise ValueError(
            f"class_list does not contain the class {unknown[0]!r} of some files; add it."
        )
    return [str(path) for path in files], [labels[name] for name in classes_of_files]


class CocoReader(_SampleReader):
    """Reads the images, boxes and labels of a COCO annotation file.

    Outputs: encoded images (``NDT``); ``ids`` (batch,); ``sizes`` (batch, 2), the height and width
    of each image; ``boxes`` (batch, 200, 4); ``labels`` (batch, 200); ``lengths`` (batch,), the
    number of boxes; and ``batch`` (1,), the number of images before an incomplete batch was filled.

    Assumptions: boxes are left, top, right and bottom as fractions of the image's size; labels are
    positions in the sorted category ids, from 1; images without boxes are skipped; missing boxes
    are zeros.

    Parameters
    ----------
    root : str
        Folder with the images.
    annfile : str
        Annotation file in COCO's JSON format.
    seed, shuffle, drop_remainder, pad_remainder, num_slices, slice_index, max_file
        As in `ReadImageDatasetFromDir`.
    partial_batch : bool
        Must be False: batches have a fixed size.

    Raises
    ------
    ValueError
        The file has no boxes, an image has more than 200, or an argument is invalid.
    """

    outputs = 7

    def __init__(
        self,
        *,
        root: str | os.PathLike[str],
        annfile: str | os.PathLike[str],
        seed: int | None = None,
        shuffle: bool = False,
        drop_remainder: bool = False,
        pad_remainder: bool = False,
        num_slices: int = 1,
        slice_index: int = 0,
        max_file: str | None = None,
        partial_batch: bool = False,
        device: str | None = None,
    ) -> None:
        if partial_batch:
            raise ValueError("partial_batch=True is not supported by the simulator; remove it.")
        content = json.loads(Path(annfile).read_text(encoding="utf-8"))
        positions = {
            id: position
            for position, id in enumerate(sorted(each["id"] for each in content["categories"]), 1)
        }
        self._boxes: dict[int, list[tuple[list[float], int]]] = {}
        for each in content["annotations"]:
            boxes = self._boxes.setdefault(each["image_id"], [])
            boxes.append((each["bbox"], positions[each["category_id"]]))
            if len(boxes) > _MAX_BOXES:
                raise ValueError(
                    f"Image {each['image_id']} of {str(annfile)!r} has more than {_MAX_BOXES} "
                    "boxes; remove some."
                )
        self._images = [each for each in content["images"] if each["id"] in self._boxes]
        self._root = Path(root)
        order = Order(
            num_slices, slice_index, shuffle, drop_remainder, pad_remainder, seed_or_default(seed)
        )
        super().__init__(len(self._images), order, device)

    def compute(self) -> tuple[Value, ...]:
        chosen, valid = self._batch()
        images = [self._images[index] for index in chosen]
        boxes = torch.zeros(len(images), _MAX_BOXES, 4)
        labels = torch.zeros(len(images), _MAX_BOXES, dtype=torch.int32)
        for row, image in enumerate(images):
            for column, ((x, y, width, height), label) in enumerate(self._boxes[image["id"]]):
                corners = torch.tensor([x, y, x + width, y + height])
                scale = torch.tensor([image["width"], image["height"]] * 2)
                boxes[row, column] = corners / scale
                labels[row, column] = label
        sizes = [[image["height"], image["width"]] for image in images]
        lengths = [len(self._boxes[image["id"]]) for image in images]
        ids = [image["id"] for image in images]
        paths = [str(self._root / image["file_name"]) for image in images]
        numbers = (torch.tensor(each, dtype=torch.int32) for each in (ids, sizes, lengths, [valid]))
        id_tensor, size_tensor, length_tensor, valid_tensor = numbers
        outputs = (paths, id_tensor, size_tensor, boxes, labels, length_tensor, valid_tensor)
        return tuple(map(Value, outputs))


class MediaExtReaderOp(Reader):
    """Reads batches from an instance of the user's class.

    Parameters
    ----------
    impl : type
        A subclass of ``media_ext_reader_op_impl``.
    num_outputs : int
        Number of outputs; an output of type ``NDT`` is a list of paths or encoded images.
    seed : int, optional
        Passed to `impl`.
    priv_params : dict, optional
        The user's own parameters.

    Raises
    ------
    ValueError
        The number of outputs or the shape of an output differs from its declaration.
    """

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
        self._params = {
            "impl": impl,
            "num_outputs": num_outputs,
            "seed": seed_or_default(seed),
            "priv_params": priv_params or {},
        }

    def prepare(self, settings: Settings) -> None:
        super().prepare(settings)
        self._reader = self._impl(self._params, settings)
        self._declared = list(self._reader.gen_output_info())
        self._require_outputs("gen_output_info", self._declared)

    def __len__(self) -> int:
        return len(self._reader)

    def start(self) -> None:
        self._batches = iter(self._reader)

    def compute(self) -> tuple[Value, ...]:
        made = next(self._batches)
        batch = list(made) if isinstance(made, (tuple, list)) and self.outputs > 1 else [made]
        self._require_outputs("__next__", batch)
        return tuple(map(self._value, range(self.outputs), batch))

    def _value(self, index: int, output: Any) -> Value:
        declared = self._declared[index]
        if declared.dtype == dtype.NDT:
            return Value(list(output))
        tensor = as_tensor(output, torch_dtype(declared.dtype))
        expected = [int(size) for size in reversed(list(declared.shape))]
        if list(tensor.shape) != expected:
            raise ValueError(
                f"Output {index} of {self._impl.__name__} has shape {list(tensor.shape)}, but "
                f"gen_output_info declares {expected}; return the declared shape."
            )
        return Value(tensor)

    def _require_outputs(self, method: str, found: list[Any]) -> None:
        if len(found) != self.outputs:
            raise ValueError(
                f"{method} of {self._impl.__name__} returned {len(found)} outputs, but num_outputs "
                f"is {self.outputs}; return that many."
            )
