"""Test ``HabanaDataLoader`` over folders of images and over other datasets."""

import warnings

import pytest
import torch
from habana_dataloader import HabanaDataLoader
from image_folders import write_folder
from torch.utils.data import DistributedSampler, RandomSampler, TensorDataset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def torchvision():
    return pytest.importorskip("torchvision", reason="make test runs it in another environment")


@pytest.fixture
def dataset(torchvision, tmp_path):
    """A function that creates an `ImageFolder` of six images with the specified transforms."""
    folder = write_folder(tmp_path / "images", 3)
    names = torchvision.transforms
    last = [names.ToTensor(), names.Normalize(MEAN, STD)]
    training = [names.RandomResizedCrop(8), names.RandomHorizontalFlip(), *last]
    evaluation = [names.Resize((10, 12)), names.CenterCrop(8), *last]

    def make(kind):
        transforms = {"training": training, "evaluation": evaluation, "bare": last[:1]}[kind]
        return torchvision.datasets.ImageFolder(folder, names.Compose(transforms))

    return make


def quiet(*arguments, **options):
    """Create a loader that must not fall back."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return HabanaDataLoader(*arguments, **options)


def test_evaluation_batches_equal_those_of_torchvision(dataset):
    images = dataset("evaluation")
    loader = quiet(images, batch_size=2, num_workers=8, pin_memory=True, drop_last=True)
    assert len(loader) == 3
    for _ in range(2):
        for number, (batch, labels) in enumerate(loader):
            assert (batch.device.type, labels.device.type) == ("hpu", "hpu")
            expected = [images[2 * number + each] for each in (0, 1)]
            assert labels.tolist() == [label for _, label in expected]
            wanted = torch.stack([image for image, _ in expected])
            torch.testing.assert_close(batch.cpu(), wanted, atol=1e-5, rtol=1e-5)


def test_training_batches_are_random_and_repeat_for_a_seed(dataset):
    def epochs(seed):
        images = dataset("training")
        sampler = RandomSampler(images, generator=torch.Generator().manual_seed(seed))
        loader = quiet(images, batch_size=2, sampler=sampler, drop_last=True)
        return [torch.cat([batch.cpu() for batch, _ in loader]) for _ in range(2)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert first[0].shape == (6, 3, 8, 8)
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_ranks_share_the_images(dataset):
    images = dataset("evaluation")
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(images, num_replicas=2, rank=rank, shuffle=True)
        loader = quiet(images, batch_size=1, sampler=sampler, drop_last=True)
        assert len(loader) == 3
        seen += [batch.cpu() for batch, _ in loader]
    wanted = {round(float(image.sum()), 2) for image, _ in images}
    assert {round(float(batch.sum()), 2) for batch in seen} == wanted


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("bare", {"drop_last": True}, "its transforms are ToTensor instead of RandomResizedCrop"),
        ("evaluation", {}, "drop_last is not True"),
        ("evaluation", {"drop_last": True, "collate_fn": list}, "collate_fn is set"),
        ("evaluation", {"drop_last": True, "sampler": [0, 1]}, "its sampler is a list"),
    ],
    ids=["transforms", "last", "collate", "sampler"],
)
def test_other_options_fall_back_with_a_reason(dataset, kind, options, reason):
    with pytest.warns(UserWarning, match=f"falls back to torch.utils.data.DataLoader: {reason}"):
        loader = HabanaDataLoader(dataset(kind), **options)
    assert len(loader) == len(options.get("sampler", range(6)))
    first = next(iter(loader))[0]
    assert (first[0] if isinstance(first, tuple) else first).device.type == "cpu"


def test_other_datasets_are_loaded_by_pytorch():
    data = TensorDataset(torch.arange(6))
    with pytest.warns(UserWarning, match="the dataset is a TensorDataset, not an ImageFolder"):
        loader = HabanaDataLoader(data, batch_size=4)
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]
    assert len(loader) == 2
