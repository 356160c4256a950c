"""Test the media pipeline: readers, decoder, transforms, user functions and iterators."""

import json
import sys

import numpy as np
import pytest
import torch
from habana_frameworks.mediapipe import fn
from habana_frameworks.mediapipe.media_types import (
    dtype,
    ftype,
    imgtype,
    randomCropType,
    readerOutType,
)
from habana_frameworks.mediapipe.mediapipe import MediaPipe
from habana_frameworks.mediapipe.operators.cpu_nodes.cpu_nodes import (
    media_ext_cpu_op_impl,
    media_function,
)
from habana_frameworks.mediapipe.operators.reader_nodes.read_image_from_dir import get_max_file
from habana_frameworks.mediapipe.operators.reader_nodes.reader_nodes import (
    media_ext_reader_op_impl,
    media_ext_reader_op_tensor_info,
)
from habana_frameworks.mediapipe.plugins.iterator_pytorch import (
    HPUGenericPytorchIterator,
    HPUResnetPytorchIterator,
    HPUSsdPytorchIterator,
)
from image_folders import save_image, write_folder
from PIL import Image


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "images", 3)


def pipe(outputs, batch_size=2, device="legacy"):
    """Build a pipeline from a function that defines the graph, and start an epoch."""

    class Pipe(MediaPipe):
        def definegraph(self):
            return outputs()

    made = Pipe(device, 2, batch_size, 1, "images")
    made.build()
    made.iter_init()
    return made


def decoded(folder, **options):
    """Return the graph that decodes the images of a folder in order."""
    reader = fn.ReadImageDatasetFromDir(dir=folder, format="JPEG", shuffle=False, device="cpu")
    decoder = fn.ImageDecoder(device="hpu", **options)

    def graph():
        jpegs, labels = reader()
        return decoder(jpegs), labels

    return graph


def pixels(path, size, planar=True, box=None):
    image = Image.open(path).resize(size, Image.Resampling.BILINEAR, box=box)
    array = torch.from_numpy(np.array(image))
    return array.permute(2, 0, 1) if planar else array


@pytest.mark.parametrize("planar", [True, False], ids=["planes", "interleaved"])
def test_images_and_labels_are_on_the_device_in_the_order_of_the_folder(folder, planar):
    kind = imgtype.RGB_P if planar else imgtype.RGB_I
    made = pipe(decoded(folder, output_format=kind, resize=[8, 6]))
    assert len(made) == 3
    paths = sorted(folder.glob("*/*.jpg"))
    seen = []
    for first in (0, 2, 4):
        images, labels = made.run()
        assert (images.device.type, images.dtype, labels.device.type) == ("hpu", torch.uint8, "hpu")
        expected = [pixels(path, (8, 6), planar) for path in paths[first : first + 2]]
        assert torch.equal(images.cpu(), torch.stack(expected))
        seen += labels.as_cpu().as_nparray().tolist()
    assert seen == [0, 0, 0, 1, 1, 1]
    with pytest.raises(StopIteration):
        made.run()


def test_outputs_are_plain_tensors_after_an_operation(folder):
    images, _ = pipe(decoded(folder, resize=[8, 6])).run()
    assert type(images + 1) is torch.Tensor
    assert images.as_cpu().as_nparray().shape == (2, 3, 6, 8)


def test_pipeline_on_the_host_leaves_outputs_there(folder):
    images, labels = pipe(decoded(folder, resize=[8, 6]), device="cpu").run()
    assert (images.device.type, labels.device.type) == ("cpu", "cpu")


def test_shuffled_epochs_differ_and_repeat_for_the_same_seed(folder):
    def epochs(seed):
        reader = fn.ReadImageDatasetFromDir(dir=str(folder), format="jpg", seed=seed)
        made = pipe(lambda: reader(), batch_size=1)
        found = []
        for _ in range(3):
            made.iter_init()
            found.append([made.run()[0][0] for _ in range(len(made))])
        return found

    first = epochs(1)
    assert first == epochs(1) != epochs(2)
    assert first[0] != first[1]
    assert all(sorted(epoch) == sorted(first[0]) for epoch in first)
    assert len(set(first[0])) == 6


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"drop_remainder": True}, [[0, 1, 2, 3]]),
        ({"pad_remainder": True}, [[0, 1, 2, 3], [4, 5, 5, 5]]),
        ({}, [[0, 1, 2, 3], [4, 5, 0, 1]]),
        ({"num_slices": 4, "slice_index": 3}, [[3, 1, 3, 1]]),
    ],
    ids=["dropped", "padded", "filled", "sliced"],
)
def test_last_batch_is_dropped_or_filled(folder, options, expected):
    paths = sorted(map(str, folder.glob("*/*.jpg")))
    names = [str(number) for number in range(6)]
    reader = fn.ReadImageDatasetFromDir(
        file_list=paths, class_list=names, file_classes=names, shuffle=False, **options
    )
    made = pipe(lambda: reader(), batch_size=4)
    batches = [made.run() for _ in range(len(made))]
    assert [labels.tolist() for _, labels in batches] == expected
    assert [[paths.index(path) for path in files] for files, _ in batches] == expected


def test_center_crop_keeps_the_ratio_of_the_output(folder):
    crop = randomCropType.CENTER_CROP
    images, _ = pipe(decoded(folder, resize=[5, 5], random_crop_type=crop)).run()
    first = min(folder.glob("*/*.jpg"))
    width, height = Image.open(first).size
    left = round((width - height) / 2)
    expected = pixels(first, (5, 5), box=(left, 0, left + height, height))
    assert torch.equal(images[0].cpu(), expected)


@pytest.mark.parametrize(
    "kind",
    [
        randomCropType.RANDOMIZED_AREA_AND_ASPECT_RATIO_CROP,
        randomCropType.RANDOMIZED_ASPECT_RATIO_CROP,
    ],
)
def test_random_crops_differ_and_repeat_for_the_same_seed(folder, kind):
    def batch(seed):
        return pipe(decoded(folder, resize=[8, 6], random_crop_type=kind, seed=seed)).run()[0].cpu()

    whole = pipe(decoded(folder, resize=[8, 6])).run()[0].cpu()
    assert torch.equal(batch(3), batch(3))
    assert not torch.equal(batch(3), batch(4))
    assert not torch.equal(batch(3), whole)


class Alternate(media_function):
    """Flips every second image."""

    def __init__(self, params):
        assert (params["seed"], params["priv_params"]) == (5, {"first": 1})
        self.elements = np.zeros(params["shape"][::-1], dtype=params["dtype"])
        self.elements[params["priv_params"]["first"] :: 2] = 1

    def __call__(self):
        return self.elements


@pytest.mark.parametrize("planar", [True, False], ids=["planes", "interleaved"])
def test_flipped_cropped_and_normalized_images_equal_the_formula(folder, planar):
    kind, shape = (imgtype.RGB_P, [1, 1, 3]) if planar else (imgtype.RGB_I, [3, 1, 1])
    graph = decoded(folder, resize=[8, 6], output_format=kind)
    chosen = fn.MediaFunc(
        func=Alternate, shape=[2], dtype=dtype.UINT8, seed=5, priv_params={"first": 1}
    )
    flip = fn.RandomFlip(horizontal=1)
    mean = fn.MediaConst(data=np.float32([1, 2, 3]), shape=shape, dtype=dtype.FLOAT32)
    scale = fn.MediaConst(data=[0.5, 0.25, 2.0], shape=shape, dtype=dtype.FLOAT32)
    norm = fn.CropMirrorNorm(
        crop_w=4, crop_h=4, crop_pos_x=0.5, crop_pos_y=1.0, dtype=dtype.BFLOAT16
    )

    def outputs():
        images, labels = graph()
        return norm(flip(images, chosen()), mean(), scale()), labels

    made, _ = pipe(outputs).run()
    plain, _ = pipe(decoded(folder, resize=[8, 6])).run()
    expected = plain.cpu().float()
    expected[1] = expected[1].flip(2)
    expected = expected[:, :, 2:6, 2:6] - torch.tensor([1.0, 2.0, 3.0])[:, None, None]
    expected *= torch.tensor([0.5, 0.25, 2.0])[:, None, None]
    expected = expected if planar else expected.permute(0, 2, 3, 1)
    assert torch.equal(made.cpu(), expected.bfloat16())
    assert made.as_nparray().dtype == np.float32


def test_crop_resize_and_cast_follow_the_decoder(folder):
    graph = decoded(folder, resize=[8, 6])
    crop = fn.Crop(crop_w=4, crop_h=2, crop_pos_x=1.0)
    grow, cast = fn.Resize(size1=8, size2=4, mode=ftype.NEAREST), fn.Cast(dtype=dtype.FLOAT32)
    cropped, grown, floats = pipe(
        lambda: ((images := crop(graph()[0])), grow(images), cast(grow(images)))
    ).run()
    plain, _ = pipe(decoded(folder, resize=[8, 6])).run()
    assert torch.equal(cropped.cpu(), plain.cpu()[:, :, :2, 4:])
    doubled = cropped.cpu().repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert torch.equal(grown.cpu(), doubled)
    assert (floats.dtype, torch.equal(floats.cpu(), doubled.float())) == (torch.float32, True)


class Pairs(media_ext_reader_op_impl):
    """Reads encoded images and a number for each."""

    def __init__(self, params, fw_params):
        self.paths = sorted(params["priv_params"]["folder"].glob("*/*.jpg"))
        self.batch_size = fw_params.batch_size
        self.largest = get_max_file(self.paths)

    def get_largest_file(self):
        return self.largest

    def get_media_output_type(self):
        return readerOutType.BUFFER_LIST

    def gen_output_info(self):
        return [
            media_ext_reader_op_tensor_info(dtype.NDT, np.uint32([self.batch_size]), ""),
            media_ext_reader_op_tensor_info(dtype.UINT32, np.uint32([self.batch_size]), ""),
        ]

    def __len__(self):
        return len(self.paths) // self.batch_size

    def __iter__(self):
        self.next = 0
        return self

    def __next__(self):
        if self.next == len(self):
            raise StopIteration
        first = self.next * self.batch_size
        self.next += 1
        chosen = range(first, first + self.batch_size)
        return [self.paths[index].read_bytes() for index in chosen], np.uint32(chosen)


class Brighter(media_ext_cpu_op_impl):
    def __call__(self, images):
        return images // 2 + 128


def test_external_reader_and_function_replace_operators(folder):
    reader = fn.MediaExtReaderOp(impl=Pairs, num_outputs=2, priv_params={"folder": folder})
    decoder = fn.ImageDecoder(resize=[8, 6])
    brighter = fn.MediaExtCpuOp(impl=Brighter)

    def outputs():
        jpegs, numbers = reader()
        return brighter(decoder(jpegs)), numbers

    made = pipe(outputs)
    iterator = HPUGenericPytorchIterator(mediapipe=made)
    plain, _ = pipe(decoded(folder, resize=[8, 6])).run()
    for _ in range(2):
        batches = list(iterator)
        assert len(batches) == len(iterator) == 3
        assert type(batches[0][0]) is torch.Tensor
        assert torch.equal(batches[0][0].cpu(), plain.cpu() // 2 + 128)
        assert [numbers.tolist() for _, numbers in batches] == [[0, 1], [2, 3], [4, 5]]


def test_labels_of_the_resnet_iterator_train_a_model_on_the_device(folder):
    graph, cast = decoded(folder, resize=[8, 6]), fn.Cast(dtype=dtype.FLOAT32)
    iterator = HPUResnetPytorchIterator(
        mediapipe=pipe(lambda: (cast((outputs := graph())[0]), outputs[1]))
    )
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 6, 2)).to("hpu")
    for images, labels in iterator:
        torch.nn.functional.cross_entropy(net(images / 255), labels).backward()
    assert (labels.dtype, net[1].weight.grad.device.type) == (torch.int64, "hpu")


@pytest.fixture
def coco(tmp_path):
    """A COCO file with three images, of which two have boxes."""
    images = [
        {"id": 10 + number, "file_name": f"{number}.jpg", "width": 20, "height": 10}
        for number in range(3)
    ]
    for image in images:
        save_image(tmp_path / image["file_name"], (20, 10), image["id"])
    annotations = [
        {"image_id": 10, "category_id": 7, "bbox": [2, 1, 10, 5]},
        {"image_id": 12, "category_id": 3, "bbox": [0, 0, 20, 10]},
        {"image_id": 12, "category_id": 7, "bbox": [5, 5, 5, 5]},
    ]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 7}, {"id": 3}]}
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    return tmp_path


def test_coco_reader_returns_boxes_and_labels_of_each_image(coco):
    reader = fn.CocoReader(root=coco, annfile=coco / "annotations.json", pad_remainder=True)
    decoder = fn.ImageDecoder(resize=[4, 4])

    def outputs():
        jpegs, *others = reader()
        return decoder(jpegs), *others

    [batch] = HPUSsdPytorchIterator(mediapipe=pipe(outputs, batch_size=3))
    images, ids, sizes, boxes, labels, lengths, valid = batch
    assert images.shape == (3, 3, 4, 4)
    assert [ids.tolist(), lengths.tolist(), valid.tolist()] == [[10, 12, 12], [1, 2, 2], [2]]
    assert (sizes.tolist(), labels.dtype) == ([[10, 20]] * 3, torch.int64)
    assert (boxes.shape, labels.shape) == ((3, 200, 4), (3, 200))
    assert boxes[0, 0].cpu().tolist() == pytest.approx([0.1, 0.1, 0.6, 0.6])
    assert boxes[1, :2].cpu().flatten().tolist() == [0, 0, 1, 1, 0.25, 0.5, 0.5, 1]
    assert [row[:3].tolist() for row in labels] == [[2, 0, 0], [1, 2, 0], [1, 2, 0]]


def test_other_operators_are_refused_in_one_sentence():
    with pytest.raises(AttributeError, match=r"does not include the operator Zoom; use Cast, .*Op"):
        _ = fn.Zoom
    with pytest.raises(ImportError, match="VideoDecoder"):
        from habana_frameworks.mediapipe.fn import VideoDecoder  # noqa: F401


def not_built(folder):
    MediaPipe("mixed").run()


def not_started(folder):
    made = MediaPipe("mixed")
    made.definegraph = decoded(folder)
    made.build()
    made.run()


def not_jpeg(folder):
    path = folder / "first" / "text.jpg"
    path.write_text("text")
    reader = fn.ReadImageDatasetFromDir(
        file_list=[path], class_list=["a"], file_classes=["a"], shuffle=False
    )
    decoder = fn.ImageDecoder(resize=[4, 4])
    pipe(lambda: decoder(reader()[0]), batch_size=1).run()


class Short(media_function):
    def __call__(self):
        return np.zeros(1)


def short():
    return fn.MediaFunc(func=Short, shape=[2], dtype=dtype.UINT8)()


ERRORS = {
    "not built": (not_built, r"MediaPipe has not been built; call build\(\)\."),
    "not started": (not_started, r"has not started an epoch; call iter_init\(\)\."),
    "not jpeg": (not_jpeg, r"cannot decode '.*text.jpg' \(unknown format\); pass complete JPEG"),
    "sizes": (
        lambda folder: pipe(decoded(folder), batch_size=4).run(),
        r"different sizes, such as \(20, 10\) and \(22, 10\); pass resize",
    ),
    "no reader": (
        lambda folder: pipe(fn.MediaConst(data=[1], shape=[1], dtype=dtype.UINT8)),
        "images has no reader; use fn.ReadImageDatasetFromDir",
    ),
    "outputs": (lambda folder: pipe(lambda: 1), "definegraph of images returned a int; return"),
    "device": (lambda folder: MediaPipe("cuda"), "device='cuda' of MediaPipe is unknown; use"),
    "batch": (lambda folder: MediaPipe(batch_size=0), "batch_size must be a positive integer"),
    "folder": (
        lambda folder: fn.ReadImageDatasetFromDir(dir=folder / "none"),
        "none' is not a folder; pass",
    ),
    "empty": (
        lambda folder: fn.ReadImageDatasetFromDir(dir=folder / "first"),
        "ReadImageDatasetFromDir found no images; check",
    ),
    "format": (
        lambda folder: fn.ReadImageDatasetFromDir(dir=folder, format="png"),
        "format='png' is not supported; use 'jpg' or 'JPEG'",
    ),
    "crop": (
        lambda folder: pipe(
            lambda: fn.Crop(crop_w=9, crop_h=4)(decoded(folder, resize=[8, 6])()[0])
        ).run(),
        "A crop of 9x4 exceeds images of 8x6; use",
    ),
    "inputs": (lambda folder: fn.RandomFlip()(1), "RandomFlip was called with 1 inputs; pass 2"),
    "dtype": (lambda folder: fn.Cast(dtype="ndt"), "'ndt' is not a tensor data type; use"),
    "constant": (
        lambda folder: fn.MediaConst(data=[1, 2], shape=[3], dtype=dtype.UINT8),
        r"MediaConst has 2 elements, but its shape is \[3\]; pass",
    ),
    "function": (
        lambda folder: pipe(lambda: (decoded(folder, resize=[4, 4])()[0], short())).run(),
        r"Short returned an array of shape \[1\]; return the declared shape, \[2\].",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_invalid_use_raises_one_sentence(folder, case):
    provoke, message = ERRORS[case]
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message) as raised:
        provoke(folder)
    assert "\n" not in str(raised.value)


def test_missing_pillow_is_named_with_its_installation(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs Pillow.*run pip install pillow"):
        fn.ImageDecoder(resize=[4, 4])
