"""Test a `Trainer` in the workers of a notebook, which are interactive processes with ranks."""

import pytest
from running_notebook import Notebook

pytestmark = pytest.mark.once

MODEL = """%%hpu_workers --cards 2
import lightning.pytorch as L
import torch
import hpu_magic

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(self.trainer.global_rank if self._trainer else 0)
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

rows = torch.arange(64.0).view(16, 4) / 64
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
         "enable_model_summary": False, "max_epochs": 2, "accelerator": "hpu"}

def fit(**options):
    trainer = L.Trainer(**quiet, **options)
    model = Net()
    trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=4))
    total = sum(float(one.sum()) for one in model.parameters())
    strategy = type(trainer.strategy).__name__
    return strategy, trainer.world_size, trainer.global_step, round(total, 6)
"""


@pytest.fixture(scope="module")
def notebook(forked_kernels):
    with forked_kernels(engines=True):
        notebook = Notebook()
    notebook.run("%load_ext hpu_magic")
    output = notebook.run(MODEL)
    assert not output.error, output.error
    yield notebook
    notebook.close()


def value_on_all(notebook, run, expression):
    """Run a cell on all ranks, and return an expression's value, which all ranks must agree on."""
    output = notebook.run(f"%%hpu_workers\n{run}")
    assert not output.error, output.error
    (shown,) = notebook.run(f"%%hpu_workers\nprint({expression})").texts
    ranks, _, value = shown.partition("\n  ")
    assert ranks == "ranks 0 and 1", shown
    return value


def test_trainers_run_on_all_workers(notebook):
    found = {
        value_on_all(notebook, f"found = fit({options})", "found")
        for options in ("devices=2", "", "strategy='ddp'")
    }
    assert len(found) == 1, found
    assert found.pop().startswith("('HPUParallelStrategy', 2, 4, ")
    alone = value_on_all(notebook, "found = fit(devices=1)", "found")
    assert alone.startswith("('SingleHPUStrategy', 1, 8, ")
    loop = "import lightning\nfabric = lightning.Fabric(accelerator='hpu')\nfabric.launch()"
    assert value_on_all(notebook, loop, "fabric.world_size, fabric.strategy.strategy_name") == (
        "2 hpu_parallel"
    )


def test_first_rank_shows_the_fit(notebook):
    code = (
        "trainer = L.Trainer(**quiet)\n"
        "result = hpu_magic.fit(trainer, Net(), torch.utils.data.DataLoader(rows, batch_size=4))\n"
    )
    output = notebook.run(f"%%hpu_workers\n{code}")
    assert not output.error, output.error
    shown = "\n".join(output.texts)
    assert shown.count("Fit finished") == 1, shown
    assert {mime for each in output.outputs for mime in each.get("data", {})} <= {
        "text/plain",
        "text/html",
    }
    assert value_on_all(notebook, "pass", "result.outcome, result.steps") == "finished 4"


def test_wrong_number_of_devices_is_refused(notebook):
    output = notebook.run("%%hpu_workers\nL.Trainer(**quiet, devices=3).fit(Net(), rows)")
    assert "You set `devices=3` and `num_nodes=1` in Lightning, but the product" in output.error
