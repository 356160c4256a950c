"""Test DeepSpeed's strategy and precision plug-in, on one card and in ranks on two cards."""

import re
from pathlib import Path

import pytest
from ranks import Named, Server
from steps import QUIET

HERE = Path(__file__).parent
FULL = re.compile(
    r"The checkpoint '.*/full' cannot be written, and its disk has .*B left: free space on the "
    r"disk, or save to another folder\."
)


@pytest.fixture(scope="module")
def server():
    server = Server("lightning.pytorch")
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair(server):
    """Two ranks, with the environment variables of torchrun."""
    ranks = server.start(2)
    yield ranks
    ranks.close()


def fit(name):
    return Named(str(HERE / "deepspeed_fits_of_ranks.py"), name)


@pytest.mark.once
def test_each_stage_has_the_losses_of_replicas(pair):
    pair(fit("stages"), "32-true", 1e-5, [0, 1, 2, 3])


def test_bf16_has_the_losses_of_replicas(pair):
    for expected, found in pair(fit("stages"), "bf16-mixed", 1e-2, [2, 3]):
        assert found != expected


@pytest.mark.once
def test_strategies_are_selected_by_name_and_by_file(pair, tmp_path):
    for found in pair(fit("names"), str(tmp_path)):
        assert found == [("HPUDeepSpeedStrategy", stage) for stage in (2, 3, 1, 0)]


@pytest.mark.parametrize("stage", [2, 3])
def test_checkpoints_are_resumed_and_consolidated(pair, tmp_path, stage):
    for files, error in pair(fit("checkpoints"), stage, str(tmp_path)):
        assert len([name for name in files if name.endswith("optim_states.pt")]) == 2
        assert FULL.fullmatch(error), error


def test_layers_train_in_fp8(pair):
    for found in pair(fit("fp8_layers")):
        assert found == ["torch.bfloat16", "{'enabled': True}"]


@pytest.mark.parametrize("stage", [1, 3])
def test_fabric_loops_have_the_losses_of_replicas(pair, tmp_path, stage):
    for error in pair(fit("fabric_loop"), stage, str(tmp_path / "saved")):
        assert FULL.fullmatch(error), error


CONFIG = """
trainer:
  accelerator: hpu
  devices: 2
  strategy: {strategy}
  precision: bf16-mixed
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
"""
STRATEGY = """
    class_path: hpu_magic.lightning.HPUDeepSpeedStrategy
    init_args:
      stage: 3
      process_group_backend: hccl
"""


@pytest.mark.once
@pytest.mark.parametrize(("strategy", "stage"), [("hpu_deepspeed", 2), (STRATEGY, 3)])
def test_configuration_file_selects_the_strategy(pair, tmp_path, strategy, stage):
    pytest.importorskip("jsonargparse")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(strategy=strategy))
    found = pair(fit("command_line"), str(path))
    assert found == [("HPUDeepSpeedStrategy", stage, "bf16-mixed", 4)] * 2


@pytest.mark.once
@pytest.mark.parametrize("hook", ["training_step", "configure_optimizers"])
def test_killed_rank_is_reported(server, hook):
    ranks = server.start(2)
    ranks.ask(fit("killed"), 1, hook)
    message, error = ranks.answer(0, 60)
    assert not error
    assert message.startswith("interrupted ")
    ended = f"rank 1 \\(process {ranks.pids[1]}\\) (ended during the call|has ended)"
    assert re.search(ended, message)
    ranks.close()


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("offload_optimizer", {"offload_optimizer": True, "offload_optimizer_device": "nvme"}),
        ("offload_param", {"offload_parameters": True, "offload_params_device": "nvme"}),
        ("offload_param", {"config": {"zero_optimization": {"offload_param": {"device": "nvme"}}}}),
    ],
)
def test_offload_to_the_disk_is_refused(pytorch, name, options):
    from hpu_magic.lightning.namespaces import plugins

    with pytest.raises(ValueError, match=f"{name} is set to 'nvme', .*; offload to 'cpu'"):
        plugins(pytorch.__name__).HPUDeepSpeedStrategy(**options)


@pytest.mark.once
def test_missing_deepspeed_is_reported_with_its_installation(pytorch, monkeypatch):
    from hpu_magic.lightning.namespaces import plugins

    find = "hpu_magic.lightning.deepspeed.importlib.util.find_spec"
    monkeypatch.setattr(find, lambda name: None)
    sentence = "needs DeepSpeed, which is not installed: run DS_BUILD_OPS=0 pip install deepspeed "
    with pytest.raises(ModuleNotFoundError, match=sentence):
        pytorch.Trainer(strategy="hpu_deepspeed", devices=1, **QUIET)
    with pytest.raises(ModuleNotFoundError, match=sentence):
        plugins(pytorch.__name__).HPUDeepSpeedStrategy(stage=1)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "64-true"}, "precision='64-true' is not supported by DeepSpeed on hpu: wr"),
        ({"precision": "32", "replace_layers": True}, "recipe and replace_layers are options of"),
        ({"device": "cpu"}, "device must be 'hpu', got 'cpu'; remove it"),
    ],
)
def test_invalid_precisions_are_refused(pytorch, options, sentence):
    from hpu_magic.lightning.namespaces import plugins

    with pytest.raises(ValueError, match=sentence):
        plugins(pytorch.__name__).HPUDeepSpeedPrecisionPlugin(**options)


@pytest.mark.once
def test_strategy_requires_its_precision_plug_in(pair):
    for refusal in pair(fit("refusal_of_another_precision")):
        assert refusal == (
            "MisconfigurationException: HPUDeepSpeedStrategy needs HPUDeepSpeedPrecisionPlugin, "
            "not HPUPrecisionPlugin: write precision='bf16-mixed', or "
            "plugins=[HPUDeepSpeedPrecisionPlugin('bf16-mixed')]."
        )
