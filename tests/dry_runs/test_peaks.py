"""The peak memory of a dry run equals that of the same program on the simulator, byte for byte."""

from pathlib import Path

import pytest

from tools.dry_runs import Program, compared, program_of_ranks

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
OF_RANKS = sorted((Path(__file__).parent / "programs_of_ranks").glob("*.py"))


@pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_peaks_graphs_and_host_reads_are_equal(program, lazy):
    comparison = compared(Program(program.stem, str(program), lazy=lazy))
    assert comparison.dry == comparison.real
    assert comparison.real.peak > 0


@pytest.mark.parametrize("program", OF_RANKS, ids=lambda path: path.stem)
def test_rank_0_of_several_ranks_is_equal_to_the_rank_that_represents_all(program):
    comparison = compared(program_of_ranks(program))
    assert comparison.dry == comparison.real
