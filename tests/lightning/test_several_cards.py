"""Test the fits in `fits_of_ranks` and `sharded_fits_of_ranks` on two and on four cards."""

import os
from pathlib import Path

import pytest
from ranks import Named, Server

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server():
    server = Server("lightning.pytorch")
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair(server):
    """Two ranks, with the environment variables of torchrun."""
    ranks = server.start(2, PT_HPU_LAZY_MODE=str(int(LAZY)))
    yield ranks
    ranks.close()


def fit(name):
    return Named(str(HERE / "fits_of_ranks.py"), name)


def sharded(name):
    return Named(str(HERE / "sharded_fits_of_ranks.py"), name)


def test_fit_with_callbacks_equals_the_cpu(pair, tmp_path):
    ranks = pair(fit("fit_with_callbacks"), str(tmp_path))
    for rank, shown in enumerate(ranks):
        cpu, hpu = shown["cpu"], shown["hpu"]
        assert shown["strategy"] == ("HPUParallelStrategy", "hpu:0", 2, rank, "hccl")
        assert shown["seen"] == [(kind, "hpu", 4) for kind in ("test", "train", "val")]
        assert 2 < cpu["steps"][0] < 12
        for same in ("steps", "best", "rates"):
            assert hpu[same] == cpu[same]
        assert hpu["metrics"] == pytest.approx(cpu["metrics"], rel=1e-5)
        for found, expected in zip(hpu["evaluated"], cpu["evaluated"], strict=True):
            assert found == [pytest.approx(expected[0], rel=1e-5)]
        expected = cpu["predicted"][rank::2]
        assert [value for row in hpu["predicted"] for value in row] == pytest.approx(
            [value for row in expected for value in row], rel=1e-4
        )
    header = next((tmp_path / "hpu").rglob("metrics.csv")).read_text().splitlines()[0]
    assert "InUse" in header
    assert len(list((tmp_path / "hpu").glob("*.ckpt"))) == 2


def test_ddp_options_and_hooks_are_passed_on(pair):
    pair(fit("ddp_options"))
    pair(fit("ddp_hooks"))


def test_sync_batchnorm_equals_the_whole_batch(pair):
    pair(fit("sync_batchnorm"))


def test_unused_parameters_are_reported_with_a_fix(pair):
    for error in pair(fit("unused_parameters")):
        assert "use strategy=HPUParallelStrategy(find_unused_parameters=True)" in error


def test_manual_optimization_equals_the_cpu(pair):
    pair(fit("manual_optimization"))


def test_averaged_weights_equal_the_cpu(pair):
    pair(fit("averaged_weights"))


def test_all_ranks_train_in_each_precision(pair):
    one, other = pair(fit("precisions"))
    assert one == other
    assert one["bf16-mixed"] == one["bf16-true"] == ["torch.bfloat16"]


def test_checkpoints_load_on_the_cpu_and_on_the_cards(pair, tmp_path):
    pair(fit("checkpoints"), str(tmp_path), str(tmp_path / "came"))
    assert sorted((tmp_path / "came").read_text()) == ["0", "1"]


@pytest.mark.skipif(LAZY, reason="lazy mode has no such backend")
def test_compiled_modules_equal_the_cpu(pair):
    pair(fit("compiled"))


def test_fabric_loops_equal_the_cpu(pair, tmp_path):
    one, other = pair(fit("fabric_loop"), str(tmp_path), "hpu_parallel")
    assert one == other == pair(fit("fabric_loop"), str(tmp_path), "ddp")[0]


def test_strategies_reduce_and_broadcast(pair):
    for found in pair(fit("reductions")):
        mean, total = ([0.5, 1.5], [0, 1]), ([1.0, 3.0], [1, 3])
        assert found == {
            "mean": mean,
            "avg": mean,
            "sum": total,
            "max": total,
            "RedOpType.AVG": mean,
            "RedOpType.SUM": total,
            "decisions": (False, True, {"from": 1}),
        }


def test_sharded_models_equal_the_cpu(pair, tmp_path):
    one, other = pair(sharded("sharded"), str(tmp_path))
    assert one == other


def test_split_models_equal_the_cpu(pair, tmp_path):
    for rows, layers in ((2, 1), (1, 2)):
        found = pair(sharded("split"), rows, layers, str(tmp_path))
        assert found[0] == found[1]
        assert found[0][1] == 16 * 4 // 2
    pair(sharded("split_with_fabric"))


@pytest.mark.once
def test_unsuitable_combinations_are_refused(pair):
    for refusals in pair(fit("unsuitable_combinations")):
        assert refusals == [
            "MisconfigurationException: HPUFSDPStrategy needs HPUFSDPPrecision, not "
            "HPUPrecisionPlugin: write precision='bf16-mixed', or "
            "plugins=[HPUFSDPPrecision('bf16-mixed')].",
            "MisconfigurationException: precision='16-mixed' scales the loss, which "
            "HPUModelParallelStrategy does not support: write precision='bf16-mixed'.",
            "HPUError: process_group_backend='gloo' does not support tensors on a card: remove "
            "it, or write 'hccl', or 'cpu:gloo,hpu:hccl' to exchange CPU tensors as well.",
        ]


CONFIG = """
trainer:
  accelerator: hpu
  devices: 2
  strategy: {strategy}
  plugins:
    - class_path: hpu_magic.lightning.HPUCheckpointIO
  precision: bf16-mixed
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
"""
STRATEGY = """
    class_path: hpu_magic.lightning.HPUParallelStrategy
    init_args:
      process_group_backend: hccl
      precision_plugin: null
    dict_kwargs:
      static_graph: true
"""


@pytest.mark.once
def test_configuration_file_selects_the_strategy(pair, tmp_path):
    pytest.importorskip("jsonargparse")
    for name, text in {"name": "hpu_parallel", "path": STRATEGY}.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(CONFIG.format(strategy=text))
        found = pair(fit("command_line"), str(path))
        assert found == [("HPUParallelStrategy", name == "path", True, 4)] * 2


@pytest.mark.once
def test_two_machines_train_together(server):
    ranks = server.start(2, PT_HPU_LAZY_MODE=str(int(LAZY)))
    for rank in range(2):
        ranks.ask(fit("node"), rank, str(3 + rank), of=[rank])
    assert [ranks.answer(rank) for rank in range(2)] == [
        ((2, rank, rank, str(3 + rank)), "") for rank in range(2)
    ]
    ranks.close()


@pytest.mark.once
@pytest.mark.parametrize("killed", [0, 1])
def test_killed_rank_is_reported(server, monkeypatch, killed):
    from hpu_magic.simulator import cards

    ranks = server.start(2, PT_HPU_LAZY_MODE=str(int(LAZY)))
    ranks.ask(fit("killed_in_a_step"), killed)
    message, error = ranks.answer(1 - killed)
    assert not error
    assert message.startswith("interrupted ")
    assert f"rank {killed} (process {ranks.pids[killed]}) ended during the call." in message
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", ranks.cards)
    held = [card.module_id for card in cards.snapshot() if card.holder]
    assert held == [1 - killed]
    ranks.close()


def test_four_cards_share_checkpoints_and_split_models(server, tmp_path):
    ranks = server.start(4, PT_HPU_LAZY_MODE=str(int(LAZY)))
    ranks(fit("checkpoints"), str(tmp_path), str(tmp_path / "came"))
    assert sorted((tmp_path / "came").read_text()) == ["0", "1", "2", "3"]
    found = ranks(sharded("split"), 2, 2, str(tmp_path))
    assert {size for _, size in found} == {16 * 4 // 4}
    ranks.close()
