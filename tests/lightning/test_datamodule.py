"""``HPUDataModule`` loads folders of images with the vendor's media pipeline."""

import sys

import pytest
from image_folders import write_folder
from steps import QUIET


@pytest.fixture
def folders(tmp_path):
    """Arguments that name a folder of six images for training and one of four for validation."""
    return {
        "train_dir": str(write_folder(tmp_path / "train", 3)),
        "val_dir": str(write_folder(tmp_path / "val", 2)),
        "batch_size": 2,
    }


@pytest.fixture
def module_class(pytorch):
    from hpu_magic.lightning.namespaces import plugins

    return plugins(pytorch.__name__).HPUDataModule


@pytest.fixture
def torchvision():
    return pytest.importorskip("torchvision", reason="make test runs it in another environment")


def test_model_trains_and_validates_on_batches_of_the_pipeline(
    pytorch, module_class, folders, torch, torchvision
):
    names = torchvision.transforms
    last = [names.ToTensor(), names.Normalize((0.5,) * 3, (0.25,) * 3)]

    class Net(pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3 * 8 * 8, 2)
            self.seen = []

        def training_step(self, batch, index):
            images, labels = batch
            self.seen.append((images.device.type, tuple(images.shape), labels.dtype))
            return torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)

        def validation_step(self, batch, index):
            self.seen.append(batch[1].tolist())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = module_class(
        **folders,
        train_transforms=[names.RandomResizedCrop(8), *last],
        val_transforms=[names.Resize(10), names.CenterCrop(8), *last],
    )
    net = Net()
    options = QUIET | {"num_sanity_val_steps": 0}
    pytorch.Trainer(accelerator="hpu", devices=1, max_epochs=1, **options).fit(net, data)
    training = ("hpu", (2, 3, 8, 8), torch.int64)
    assert net.seen == [training] * 3 + [[0, 0], [1, 1]]


def test_default_transforms_are_those_of_resnet_and_repeat_for_a_seed(
    module_class, folders, torch, torchvision
):
    def first_batch(seed):
        data = module_class(**folders, seed=seed)
        data.setup("fit")
        return next(iter(data.train_dataloader()))[0].cpu()

    assert first_batch(1).shape == (2, 3, 224, 224)
    assert torch.equal(first_batch(1), first_batch(1))
    assert not torch.equal(first_batch(1), first_batch(2))
    data = module_class(**folders)
    data.setup("validate")
    batches = [images.shape for images, _ in data.val_dataloader()]
    assert batches == [(2, 3, 224, 224)] * 2


def test_other_transforms_are_refused(module_class, folders, torchvision):
    data = module_class(**folders, val_transforms=[torchvision.transforms.Grayscale()])
    with pytest.raises(
        ValueError, match=r"val_transforms contains Grayscale, which .*use Resize, "
    ):
        data.setup()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            {"shuffle": True},
            "shuffle=True is not supported by HabanaDataLoader; pass shuffle=False",
        ),
        ({"pin_memory": False}, "pin_memory=False is not .*; pass pin_memory=True"),
        ({"num_workers": 4}, "num_workers=4 is not .*; pass num_workers=8"),
    ],
    ids=["shuffle", "pin_memory", "num_workers"],
)
def test_options_without_support_are_refused(module_class, folders, option, message):
    with pytest.raises(ValueError, match=message):
        module_class(**folders, **option).setup("fit")


def test_missing_packages_are_named(module_class, folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with (
        pytest.warns(UserWarning, match="supports only drop_last=True"),
        pytest.raises(ModuleNotFoundError, match=r"needs torchvision.*: run pip install torchvi"),
    ):
        module_class(**folders, drop_last=False).setup("fit")
    monkeypatch.setitem(sys.modules, "habana_dataloader", None)
    with pytest.raises(ModuleNotFoundError, match="needs habana_dataloader, which is not instal"):
        module_class(**folders).setup("fit")
