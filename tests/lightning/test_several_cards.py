"""Several cards: what `fits_of_ranks` and its neighbour run on two and on four, beside the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ranks import Named, Ranks, Server

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("lightning.pytorch")
    yield server
    server.close()


@pytest.fixture(scope="module")
def pair(server: Server) -> Iterator[Ranks]:
    """Two processes, told their ranks as torchrun and the workers of a notebook are."""
    ranks = server.start(2, PT_HPU_LAZY_MODE=str(int(LAZY)))
    yield ranks
    ranks.close()


def fit(name: str) -> Named:
    return Named(str(HERE / "fits_of_ranks.py"), name)


def sharded(name: str) -> Named:
    return Named(str(HERE / "sharded_fits_of_ranks.py"), name)


def test_a_fit_with_callbacks_is_the_cpus(pair, tmp_path):
    ranks = pair(fit("whole"), str(tmp_path))
    for rank, shown in enumerate(ranks):
        cpu, hpu = shown["cpu"], shown["hpu"]
        assert shown["strategy"] == ("HPUParallelStrategy", "hpu:0", 2, rank, "hccl")
        assert shown["seen"] == [(kind, "hpu", 4) for kind in ("test", "train", "val")]
        assert 2 < cpu["steps"][0] < 12
        for same in ("steps", "best", "rates"):
            assert hpu[same] == cpu[same]
        assert hpu["metrics"] == pytest.approx(cpu["metrics"], rel=1e-5)
        for mine, its in zip(hpu["evaluated"], cpu["evaluated"], strict=True):
            assert mine == [pytest.approx(its[0], rel=1e-5)]
        expected = cpu["predicted"][rank::2]
        assert [value for row in hpu["predicted"] for value in row] == pytest.approx(
            [value for row in expected for value in row], rel=1e-4
        )
    header = next((tmp_path / "hpu").rglob("metrics.csv")).read_text().splitlines()[0]
    assert "InUse" in header
    assert len(list((tmp_path / "hpu").glob("*.ckpt"))) == 2


def test_options_of_ddp(pair):
    pair(fit("options_of_ddp"))
    pair(fit("hooks_of_ddp"))


def test_unused_parameters_are_told_of(pair):
    for said in pair(fit("missing_option")):
        assert "write strategy=HPUParallelStrategy(find_unused_parameters=True)" in said


def test_manual_optimization_is_the_cpus(pair):
    pair(fit("manual_optimization"))


def test_averaged_weights_are_the_cpus(pair):
    pair(fit("averaged_weights"))


def test_precisions(pair):
    one, other = pair(fit("precisions"))
    assert one == other
    assert one["bf16-mixed"] == one["bf16-true"] == ["torch.bfloat16"]


def test_checkpoints_go_to_the_cpu_and_back(pair, tmp_path):
    pair(fit("checkpoints"), str(tmp_path), str(tmp_path / "came"))
    assert sorted((tmp_path / "came").read_text()) == ["0", "1"]


@pytest.mark.skipif(LAZY, reason="lazy mode has no such backend")
def test_compiled_modules_learn_as_the_cpus(pair):
    pair(fit("compiled"))


def test_loops_of_fabric_are_the_cpus(pair, tmp_path):
    one, other = pair(fit("loop_of_fabric"), str(tmp_path), "hpu_parallel")
    assert one == other == pair(fit("loop_of_fabric"), str(tmp_path), "ddp")[0]


def test_reductions(pair):
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


def test_sharded_models_are_the_cpus(pair, tmp_path):
    one, other = pair(sharded("sharded"), str(tmp_path))
    assert one == other


def test_models_that_are_split_are_the_cpus(pair, tmp_path):
    for rows, layers in ((2, 1), (1, 2)):
        found = pair(sharded("split"), rows, layers, str(tmp_path))
        assert found[0] == found[1]
        assert found[0][1] == 16 * 4 // 2
    pair(sharded("split_with_fabric"))


def test_what_does_not_fit_is_said(pair):
    for said in pair(fit("what_does_not_fit")):
        assert said == [
            "MisconfigurationException: HPUFSDPStrategy needs HPUFSDPPrecision, not "
            "HPUPrecisionPlugin: write precision='bf16-mixed', or "
            "plugins=[HPUFSDPPrecision('bf16-mixed')].",
            "MisconfigurationException: precision='16-mixed' scales losses, which "
            "HPUModelParallelStrategy does not support: write precision='bf16-mixed'.",
            "HPUError: process_group_backend='gloo' does not support tensors on a card: remove "
            "it, or write 'hccl', or 'cpu:gloo,hpu:hccl' to exchange tensors of the CPU too.",
            "MisconfigurationException: sync_batchnorm=True is not supported on hpu, which lacks "
            "the operators of torch.nn.SyncBatchNorm: remove it.",
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


def test_a_file_chooses_the_strategy(pair, tmp_path):
    pytest.importorskip("jsonargparse")
    for name, text in {"name": "hpu_parallel", "path": STRATEGY}.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(CONFIG.format(strategy=text))
        found = pair(fit("by_command_line"), str(path))
        assert found == [("HPUParallelStrategy", name == "path", True, 4)] * 2


def test_two_machines(server):
    ranks = server.start(2, PT_HPU_LAZY_MODE=str(int(LAZY)))
    for rank in range(2):
        ranks.ask(fit("node"), rank, str(3 + rank), of=[rank])
    assert [ranks.answer(rank) for rank in range(2)] == [
        ((2, rank, rank, str(3 + rank)), "") for rank in range(2)
    ]
    ranks.close()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_is_killed_in_a_step_is_named(server, monkeypatch, killed):
    from hpu_magic.simulator import cards

    ranks = server.start(2, PT_HPU_LAZY_MODE=str(int(LAZY)))
    ranks.ask(fit("killed_in_a_step"), killed)
    said, error = ranks.answer(1 - killed)
    assert not error
    assert said.startswith("interrupted ")
    assert f"rank {killed} (process {ranks.pids[killed]}) ended during the call." in said
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", ranks.cards)
    held = [card.module_id for card in cards.snapshot() if card.holder]
    assert held == [1 - killed]
    ranks.close()


def test_four_cards(server, tmp_path):
    ranks = server.start(4, PT_HPU_LAZY_MODE=str(int(LAZY)))
    ranks(fit("checkpoints"), str(tmp_path), str(tmp_path / "came"))
    assert sorted((tmp_path / "came").read_text()) == ["0", "1", "2", "3"]
    found = ranks(sharded("split"), 2, 2, str(tmp_path))
    assert {mine for _, mine in found} == {16 * 4 // 4}
    ranks.close()
