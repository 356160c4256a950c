"""Test Habana Mixed Precision, the plug-in of the first releases, with custom operator lists."""

import pytest

pytestmark = pytest.mark.once

FIT = """
import lightning as L
import torch
from hpu_magic.lightning import HPUPrecisionPlugin

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        hidden = self.first(batch)
        self.types = (hidden.dtype, torch.tanh(hidden.float()).dtype, self.first.weight.dtype)
        loss = self.last(hidden).float().square().mean()
        self.losses = [*getattr(self, "losses", []), loss.item()]
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

plugin = HPUPrecisionPlugin({options})
torch.manual_seed(0)
net = Net()
trainer = L.Trainer(
    accelerator="hpu", devices=1, plugins=[plugin], max_epochs=3, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(net, torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=8))
print(*net.types, net.losses[-1] < net.losses[0], torch.is_autocast_enabled("hpu"))
"""


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ("precision=16, opt_level='O2'", "torch.bfloat16 torch.float32"),
        (
            "precision=16, opt_level='O1', verbose=False, bf16_file_path='{bf16}', "
            "fp32_file_path='{fp32}'",
            "torch.float32 torch.bfloat16",
        ),
    ],
)
def test_fit_uses_the_operator_lists(forked_script, tmp_path, options, types):
    (tmp_path / "bf16").write_text("tanh\n")
    (tmp_path / "fp32").write_text("addmm\nlinear\n")
    options = options.format(bf16=tmp_path / "bf16", fp32=tmp_path / "fp32")
    out = forked_script(FIT.replace("{options}", options), simulated=True)
    assert out.splitlines()[-1] == f"{types} torch.float32 True False"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "fp8", "opt_level": "O1"}, "of precision='bf16-mixed', not of 'fp8'"),
        ({"precision": "32-true", "verbose": True}, "not of '32-true': remove them"),
        ({"precision": 16, "opt_level": "O3"}, "opt_level='O3' is not supported"),
        ({"precision": 16, "bf16_file_path": "/missing"}, "/missing"),
    ],
)
def test_invalid_options_are_refused(torch, options, sentence):
    from hpu_magic.lightning import HPUPrecisionPlugin

    with pytest.raises(ValueError, match=sentence):
        HPUPrecisionPlugin(**options)


def test_release_without_hmp_is_refused(torch, monkeypatch):
    import sys

    from hpu_magic.lightning import HPUPrecisionPlugin

    monkeypatch.setitem(sys.modules, "habana_frameworks.torch.hpex.hmp", None)
    hpex = sys.modules.get("habana_frameworks.torch.hpex")
    if hpex is not None:
        monkeypatch.delattr(hpex, "hmp", raising=False)
    with pytest.raises(ValueError, match=r"of HMP, which this release .* does not include: write"):
        HPUPrecisionPlugin(16, opt_level="O1")
