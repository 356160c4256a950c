"""Code for lightning_habana runs unchanged."""

import importlib
import json
import pkgutil
import re
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.once

TRAIN = """
import sys

from lightning_habana.pytorch.accelerator import HPUAccelerator
from lightning_habana.pytorch.plugins.precision import HPUPrecisionPlugin
from lightning_habana.pytorch.strategies import SingleHPUStrategy
from lightning_habana import HPU_AVAILABLE
import lightning_habana.fabric as on_fabric
import lightning as L
from lightning.pytorch.demos.boring_classes import BoringModel

net = BoringModel()
plugin = HPUPrecisionPlugin("fp8")
plugin.convert_modules(net, replace_layers=True, recipe={"interval": 2})
trainer = L.Trainer(
    accelerator=HPUAccelerator(), devices=1, strategy=SingleHPUStrategy(), plugins=[plugin],
    max_steps=int(sys.argv[1]), logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0,
)
trainer.fit(net)
fabric = L.Fabric(
    accelerator=on_fabric.HPUAccelerator(), strategy=on_fabric.SingleHPUStrategy(),
    plugins=on_fabric.HPUPrecision("bf16-mixed"),
)
print(HPU_AVAILABLE, trainer.global_step, type(net.layer).__module__, fabric.device)
"""


@pytest.fixture
def offered(torch):
    """Enable ``import lightning_habana`` for one test."""
    from hpu_magic.lightning import as_lightning_habana

    finders = list(sys.meta_path)
    as_lightning_habana()
    as_lightning_habana()
    assert len(sys.meta_path) == len(finders) + 1
    yield
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning_habana"]:
        del sys.modules[name]


def test_script_for_lightning_habana_runs_unchanged(forked_script, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    out = forked_script(
        f"""
        import runpy, sys
        sys.argv = ["hpu_magic.lightning", {str(tmp_path / "train.py")!r}, "3"]
        runpy.run_module("hpu_magic.lightning", run_name="__main__")
        """,
        simulated=True,
    )
    available, steps, module, device = out.splitlines()[-1].split()
    assert (available, steps, device) == ("True", "3", "hpu:0")
    assert module.startswith("habana_frameworks.torch.hpex.experimental.transformer_engine")


def test_every_name_in_the_table_exists(offered):
    from hpu_magic.lightning.habana import counterparts

    for entry in counterparts():
        for name in entry.modules:
            module = importlib.import_module(name)
            assert entry.name in dir(module)
            found = getattr(module, entry.name)
            expected = pkgutil.resolve_name(entry.here.removesuffix("()"))
            assert found == (expected() if entry.here.endswith("()") else expected)


def test_helper_modules_have_their_names(offered, tmp_path):
    from typing import get_args

    import torch
    from lightning_habana.fabric.plugins.fsdp_precision import HPUPrecision
    from lightning_habana.pytorch.plugins.fsdp_precision import _PRECISION_INPUT, HPUPrecisionPlugin
    from lightning_habana.utils import hpu_distributed, imports, resources

    for precision in get_args(_PRECISION_INPUT):
        HPUPrecisionPlugin(precision)
        HPUPrecision(precision)
    assert imports._HPU_SYNAPSE_GREATER_EQUAL_1_14_0
    assert imports._HABANA_FRAMEWORK_AVAILABLE
    assert imports._LIGHTNING_GREATER_EQUAL_2_3_0
    assert imports._TORCH_GREATER_EQUAL_2_0_0
    assert [imports._TORCH_LESSER_EQUAL_1_13_1, imports._TORCH_LESSER_2_3_0] == [False, False]
    assert re.fullmatch(r"\d+\.\d+\.\d+", resources.get_hpu_synapse_version())
    assert resources.device_count() == torch.hpu.device_count()
    assert resources.is_fp8_available() == resources.is_fp16_available() == (True, "")
    stats = resources.get_device_stats(torch.device("hpu"))
    assert stats["Limit"] == torch.hpu.memory_stats()["Limit"]
    assert [resources._parse_hpus(devices) for devices in (None, 2, "8")] == [None, 2, 8]
    with pytest.raises(ValueError, match=r"devices=\[1\] is neither a number nor a string; write"):
        resources._parse_hpus([1])
    versions = resources._parse_hpu_synapse_versions
    assert versions("hl-smi version hl-1.11.0-fw-45.1.1.1 (Aug)") == ("1.11.0", "45.1.1.1")
    assert versions("no version") == ("", "")
    (tmp_path / "fp8.json").write_text('{"mode": "MEASURE", "observer": "maxabs"}')
    resources.modify_fp8_json(tmp_path / "fp8.json", {"mode": "QUANTIZE"})
    edited = json.loads((tmp_path / "fp8.json").read_text())
    assert edited == {"mode": "QUANTIZE", "observer": "maxabs"}
    value = torch.ones(2)
    assert hpu_distributed._sync_ddp_if_available(value, reduce_op="mean") is value
    assert not hpu_distributed._distributed_available()
    reductions = torch.distributed.ReduceOp
    for supported in ("SUM", "mean", "avg", *hpu_distributed.supported_reduce_ops, reductions.AVG):
        assert hpu_distributed._is_reduce_op_supported(supported)
    for other in ("product", reductions.PRODUCT):
        with pytest.raises(TypeError, match="is not supported over hccl; write 'sum', 'min',"):
            hpu_distributed._is_reduce_op_supported(other)


def test_devices_of_ranks_have_no_index(offered):
    import lightning_habana.fabric.strategies as on_fabric
    import torch
    from lightning_habana.pytorch import strategies
    from lightning_habana.pytorch.accelerator import HPUAccelerator

    devices = [torch.device("hpu")] * 2
    assert HPUAccelerator.get_parallel_devices(2) == devices
    for module in (strategies, on_fabric):
        for name in ("HPUDDPStrategy", "HPUParallelStrategy", "HPUFSDPStrategy"):
            strategy = getattr(module, name)(parallel_devices=devices)
            assert strategy.parallel_devices == devices
            assert strategy.process_group_backend == "hccl"
            assert strategy.root_device == torch.device("hpu", 0)
            chosen = getattr(module, name)(process_group_backend="cpu:gloo,hpu:hccl")
            assert chosen.process_group_backend == "cpu:gloo,hpu:hccl"


def test_star_import_contains_available_names(offered):
    space: dict[str, Any] = {}
    exec("from lightning_habana import *", space)
    assert {name for name in space if not name.startswith("__")} == {
        "HPUAccelerator",
        "HPUCheckpointIO",
        "HPUDDPStrategy",
        "HPUDataModule",
        "HPUDeepSpeedPrecisionPlugin",
        "HPUDeepSpeedStrategy",
        "HPUFSDPPrecision",
        "HPUFSDPStrategy",
        "HPUParallelStrategy",
        "HPUPrecisionPlugin",
        "HPUProfiler",
        "HPU_AVAILABLE",
        "SingleHPUStrategy",
    }


def test_unknown_names_raise_import_errors(offered):
    with pytest.raises(ImportError, match="cannot import name 'HPUStrategy'"):
        from lightning_habana import HPUStrategy  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"lightning_habana\.torch"):
        importlib.import_module("lightning_habana.torch")


def test_installed_lightning_habana_has_priority(torch, tmp_path, monkeypatch):
    from hpu_magic.lightning import as_lightning_habana
    from hpu_magic.lightning.habana import requested

    (tmp_path / "lightning_habana").mkdir()
    (tmp_path / "lightning_habana" / "__init__.py").write_text("HPUAccelerator = 'theirs'")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    with pytest.raises(ValueError, match="lightning_habana is installed and takes precedence"):
        as_lightning_habana()
    with pytest.warns(UserWarning, match="HPU_MAGIC_LIGHTNING_HABANA=1: lightning_habana is inst"):
        requested("1")
    requested("0")
    assert sys.meta_path == finders
