"""DeepSpeed on two cards; ``make deepspeed`` runs the table of all its features."""

from pathlib import Path

import pytest
from ranks import Named

PROGRAM = str(Path(__file__).with_name("zero_of_ranks.py"))


def test_each_zero_stage_has_the_losses_of_ddp(launch):
    by_rank = launch(2)(Named(PROGRAM, "losses"))
    for losses in by_rank:
        expected = losses.pop("DDP")
        assert len({*expected}) == 20
        assert list(losses) == ["ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
        for stage, found in losses.items():
            assert found == pytest.approx(expected, rel=1e-5, abs=0), stage
    assert by_rank[0] != by_rank[1]  # each rank has its own batches
