"""Test output of ranks: names, lines, tables and errors."""

import resource

import pytest
import torch

from hpu_magic.errors import HPUError
from hpu_magic.panels.rank_table import RanksView, RankTable
from hpu_magic.parallel import transfer
from hpu_magic.parallel.cluster import how_ended
from hpu_magic.parallel.failure import RankFailure, RanksFailedError
from hpu_magic.parallel.output import Lines, TerminalOutput, named
from hpu_magic.runtime.training.ranks import RankState, slowest


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ([2], "rank 2"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 2, 3], "ranks 0, 2 and 3"),
        ([1, 2, 3], "ranks 1 to 3"),
    ],
)
def test_rank_lists_have_short_names(ranks, name):
    assert named(ranks) == name


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["a\nb"], ["a", "b"]),
        (["a", "b\n", "\n"], ["ab", ""]),
        (["1 %\r", "2 %\r", "3 %"], ["3 %"]),
        (["1 %\r", "\ndone\r\n"], ["1 %", "done"]),
        (["\x1b[A\x1b[31mred\x1b[0m\x1b[K"], ["\x1b[31mred\x1b[0m"]),
    ],
)
def test_control_characters_edit_lines_like_in_a_terminal(pieces, shown):
    lines = Lines()
    for piece in pieces:
        lines.write(piece)
    assert lines.all() == shown


def test_terminal_shows_complete_lines_with_their_rank(capsys):
    output = TerminalOutput([0, 1])
    output.text(0, "one\ntw")
    output.text(1, "a\rb")
    output.text(0, "o\n")
    output.show(1, {"data": {"text/plain": "7"}})
    output.text(0, "end")
    output.finish()
    assert capsys.readouterr().out == "[0] one\n[0] two\n[1] b\n[1] 7\n[0] end\n"


def states(*seconds):
    return [
        RankState(rank, "a", 10 + rank, rank, 2**30, 2**31, 2**34, 5, 4.0, own)
        for rank, own in enumerate(seconds)
    ]


@pytest.mark.parametrize(
    ("seconds", "rank"),
    [((0.1, 0.2, 0.1), 1), ((0.1, None), None), ((0.1, 0.115), None), ((), None)],
)
def test_slowest_rank_is_much_slower_than_the_others(seconds, rank):
    found = slowest(states(*seconds))
    assert (found.rank if found else None) == rank


def test_rank_table_omits_columns_without_values(golden):
    golden("ranks", repr(RankTable(states(0.1, 0.2))), varying=False)
    unheard = [RankState(0, "a", 1), RankState(1, "<b>", 2)]
    golden("ranks_without_values", repr(RankTable(unheard)), varying=False)
    assert "&lt;b&gt;" in RankTable(unheard)._repr_html_()


def test_rank_table_appears_after_the_first_card_or_step():
    for values in ({"in_use": 1, "limit": 2, "card": 3}, {"steps": 1}):
        view = RanksView([RankState(rank, "a", 1) for rank in range(2)], live=False)
        view.update({0: RankState(0, "a", 1), 1: RankState(1, "a", 1)})
        assert view.table is None
        view.update({1: RankState(1, "a", 1, **values)})
        assert view.table.states == [RankState(0, "a", 1), RankState(1, "a", 1, **values)]


def test_error_names_the_ended_process_before_its_consequences():
    failures = {
        0: RankFailure("DistBackendError", "rank 1 ended (seen by 0)", "trace"),
        1: RankFailure("", "was killed by SIGKILL", ""),
        2: RankFailure("DistBackendError", "rank 1 ended (seen by 2)", "trace"),
    }
    error = RanksFailedError(failures, [3], ["Fix it."])
    assert str(error) == (
        "Rank 1 was killed by SIGKILL. Ranks 0 and 2 raised DistBackendError after that. "
        "Rank 3 was interrupted. Fix it."
    )
    assert error._render_traceback_() == [str(error)]


def test_error_contains_the_first_line_of_a_message():
    failure = RankFailure("ValueError", "\n\x1b[31mone\x1b[0m\ntwo", "trace")
    assert str(RanksFailedError({1: failure})) == "Rank 1 raised ValueError: one."


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("889060704.py", "line 1 of the cell"),
        ("<ipython-input-3-0a1b2c>", "line 1 of the cell"),
        ("model.py", "model.py, line 1"),
        ("<string>", "<string>, line 1"),
    ],
)
def test_syntax_error_names_the_line_of_the_cell(file, place):
    failure = RankFailure("SyntaxError", f"invalid syntax ({file}, line 1)", "trace")
    message = f"Rank 1 raised SyntaxError: invalid syntax ({place})."
    assert str(RanksFailedError({1: failure})) == message


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-9, "was killed by SIGKILL"),
        (-35, "was killed by signal 35"),
        (3, "ended with exit code 3"),
        (None, "ended"),
    ],
)
def test_end_of_a_process_is_described(code, how):
    assert how_ended(code) == how


def test_sent_variables_keep_shared_objects():
    shared = [1]
    values = transfer.unpack(transfer.pack({"a": shared, "b": shared}, "cpu"))
    assert values == {"a": [1], "b": [1]}
    assert values["a"] is values["b"]


def test_variable_that_cannot_be_sent_is_named():
    with pytest.raises(HPUError, match=r"^b \(a generator\) cannot be sent to another process"):
        transfer.pack({"a": 1, "b": (each for each in ())}, "cpu")


def test_file_that_cannot_be_written_names_the_disk(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(RuntimeError) as full:
            torch.save(torch.ones(10_000), tmp_path / "weights.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    error = RanksFailedError({1: RankFailure("RuntimeError", str(full.value), "")})
    assert str(error).endswith("(PyTorch cannot write a file; its disk may be full).")
