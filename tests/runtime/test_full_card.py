"""What is said below the error of a cell for which the card was too full."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def ended(forked_script, tmp_path):
    """Run cells on a small card and return what they printed, errors included."""

    def run_cells(*cells, **environment):
        return forked_script(
            f"""
            import sys
            sys.stderr = sys.stdout
            from IPython.core.interactiveshell import InteractiveShell
            shell = InteractiveShell.instance()
            shell.run_line_magic("colors", "nocolor")
            for source in {["%load_ext hpu_magic", "import torch", *cells]!r}:
                shell.run_cell(source, store_history=True)
            """,
            HPU_MAGIC_CARDS_DIR=str(tmp_path),
            HPU_MAGIC_CARDS="1",
            **{"HPU_MAGIC_MEMORY": "64MiB", **environment},
        )

    return run_cells


HELD = """
model = torch.nn.Linear(1024, 1024).to("hpu")
batches = [torch.ones(1 << 20, device="hpu") for _ in range(8)]
same = batches
small = torch.ones(1 << 10, device="hpu")
torch.ones(3 << 20, device="hpu")
"""


@pytest.mark.parametrize(
    ("lazy", "largest"),
    [
        ("0", "batches (32.0 MiB), Out[3] (12.0 MiB) and model (4.00 MiB)"),
        # There the variable has been promised its memory before the card refuses it.
        ("1", "batches (32.0 MiB), more (20.0 MiB) and Out[3] (12.0 MiB)"),
    ],
)
def test_the_error_ends_in_what_was_asked_what_is_free_who_has_it_and_what_to_do(
    ended, lazy, largest
):
    full = "more = torch.ones(5 << 20, device='hpu')\nprint(more[0].item())"
    out = ended(HELD, full, PT_HPU_LAZY_MODE=lazy)
    *_, error, said = out.strip().splitlines()
    assert error.startswith("RuntimeError: ")
    asked, free, limit = re.match(
        r"The card is full: ([0-9.]+) MiB were requested, and ([0-9.]+) MiB of ([0-9.]+) MiB are "
        r"free now that the cell has ended\. ",
        said,
    ).groups()
    assert (asked, limit) == ("20.0", "64.0")
    assert float(free) == 16.0
    assert said.partition(" ended. ")[2] == (
        f"The largest variables are {largest}. "
        "Delete unused variables (del batches), delete earlier results of cells (%reset -f out), "
        "or use a smaller batch or a type with fewer bits."
    )


FILLS = """
def work():
    held = torch.ones(10 << 20, device="hpu")
    return torch.ones(10 << 20, device="hpu")
small = torch.ones(1 << 10, device="hpu")
work()
"""


def test_another_error_frees_the_tensors_of_a_traceback(ended):
    out = ended(FILLS, "1 / 0", "print(torch.hpu.memory_allocated() >> 20, 'MiB')").strip()
    assert "The largest variable is the last traceback (40.0 MiB). Run another cell that" in out
    assert out.endswith("\n0 MiB")


def test_free_memory_after_a_cell_does_not_contradict_its_error(ended):
    said = ended(FILLS, "x = torch.ones(12 << 20, device='hpu')").strip().splitlines()[-1]
    assert said == (
        "The card was full: 48.0 MiB were requested. Now that the cell has ended, 64.0 MiB of "
        "64.0 MiB are free. Use a smaller batch or a type with fewer bits."
    )


def test_more_than_a_card_has_is_told_so(ended):
    said = ended("x = torch.ones(1 << 25, device='hpu')").strip().splitlines()[-1]
    assert said == (
        "The request is larger than the card: 128 MiB were requested, and the card has 64.0 MiB. "
        "Request less, for example with a smaller batch."
    )


def test_a_machine_without_room_for_the_card_is_explained_once(ended):
    said = ended("x = torch.zeros(1 << 50, device='hpu')", HPU_MAGIC_MEMORY="16384TiB").strip()
    assert "but this machine does not" in said
    assert "The card is full" not in said


def test_an_error_that_wraps_the_refusal_is_explained_and_others_are_not(ended):
    wrapped = """
try:
    torch.ones(1 << 25, device="hpu")
except RuntimeError as full:
    raise ValueError("no batch") from full
"""
    outcomes = [
        "larger than the card" in ended(source)
        for source in (
            wrapped,
            "raise RuntimeError('Allocation of a room failed')",
            "torch.ones(2, 3, device='hpu') @ torch.ones(2, 3, device='hpu')",
            wrapped.replace("from full", "from None"),
        )
    ]
    assert outcomes == [True, False, False, False]


def test_nothing_is_said_once_the_extension_is_unloaded(ended):
    out = ended("%unload_ext hpu_magic", "x = torch.ones(1 << 25, device='hpu')")
    assert "Allocation failed" in out
    assert "card is full" not in out
