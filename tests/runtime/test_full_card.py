"""Test the explanation below an out-of-memory error of a cell."""

import pytest


@pytest.fixture
def ended(forked_script, tmp_path):
    """Run cells on a small card and return their output, including errors."""

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
        # In lazy mode, the variable is bound before the card rejects the allocation.
        ("1", "batches (32.0 MiB), more (20.0 MiB) and Out[3] (12.0 MiB)"),
    ],
)
def test_explanation_names_request_free_memory_largest_variables_and_remedies(ended, lazy, largest):
    full = "more = torch.ones(5 << 20, device='hpu')\nprint(more[0].item())"
    out = ended(HELD, full, PT_HPU_LAZY_MODE=lazy)
    *_, error, explanation = out.strip().splitlines()
    assert error.startswith("RuntimeError: ")
    sizes, _, advice = explanation.partition(" ended. ")
    assert sizes == (
        "The card is out of memory: 20.0 MiB were requested, and 16.0 MiB of 64.0 MiB are free now "
        "that the cell has"
    )
    assert advice == (
        f"The largest variables are {largest}. "
        "Delete unused variables (del batches), delete earlier cell outputs (%reset -f out), or "
        "use a smaller batch or a smaller dtype."
    )


FILLS = """
def work():
    held = torch.ones(10 << 20, device="hpu")
    return torch.ones(10 << 20, device="hpu")
small = torch.ones(1 << 10, device="hpu")
work()
"""


def test_next_error_frees_the_tensors_of_the_traceback(ended):
    out = ended(FILLS, "1 / 0", "print(torch.hpu.memory_allocated() >> 20, 'MiB')").strip()
    assert "The largest variable is the last traceback (40.0 MiB). Run another cell that" in out
    assert out.endswith("\n0 MiB")


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (
            (FILLS, "x = torch.ones(12 << 20, device='hpu')"),
            "The card ran out of memory: 48.0 MiB were requested. Now that the cell has ended, "
            "64.0 MiB of 64.0 MiB are free. Use a smaller batch or a smaller dtype.",
        ),
        (
            ("x = torch.ones(1 << 25, device='hpu')",),
            "The requested allocation is larger than the card's memory: 128 MiB were requested, "
            "but the card has 64.0 MiB. Allocate less, for example by using a smaller batch.",
        ),
    ],
    ids=["memory that the cell has freed", "request larger than the card"],
)
def test_explanation_distinguishes_freed_memory_and_too_large_requests(ended, cells, sentence):
    assert ended(*cells).strip().splitlines()[-1] == sentence


def test_lack_of_host_memory_is_explained_once(ended):
    out = ended("x = torch.zeros(1 << 50, device='hpu')", HPU_MAGIC_MEMORY="16384TiB")
    assert "but this machine does not" in out
    assert "The card is out of memory" not in out


def test_only_errors_caused_by_a_full_card_are_explained(ended):
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


def test_nothing_is_explained_after_the_extension_is_unloaded(ended):
    out = ended("%unload_ext hpu_magic", "x = torch.ones(1 << 25, device='hpu')")
    assert "Allocation failed" in out
    assert "card is out of memory" not in out
