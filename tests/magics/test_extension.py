"""%load_ext hpu_magic, import hpu_magic, and %hpu."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

import hpu_magic
from hpu_magic import monitor
from hpu_magic.errors import HPUError

HEAVY = ["torch", "bokeh", "ipywidgets", "lightning", "pytorch_lightning", "numpy", "psutil"]
# What of this package may come in before any command has run, besides the commands.
AT_LOAD = {
    *("commands", "commands.cards", "commands.device", "commands.graphs", "commands.measuring"),
    *(
        "commands.declaration",
        "commands.parameters",
        "commands.planning",
        "commands.porting",
        "commands.precision",
    ),
    *("commands.training", "fits"),
    *(
        "backend",
        "errors",
        "extras",
        "holders",
        "notebook",
        "plain_text",
        "private_folder",
        "program_name",
        "units",
    ),
    *("sessions", "sessions.files", "sessions.fit", "sessions.reading", "sessions.publishing"),
    *("lightning", "lightning.habana", "lightning.hook", "lightning.names"),
    *("monitor", "monitor.reading"),
    *("runtime", "runtime.device", "runtime.start"),
    *("simulator", "simulator.activation", "simulator.cards", "simulator.finder"),
}


@pytest.fixture
def notebook(script):
    """Run cells in an IPython of their own and return what they printed."""

    def run_cells(*cells, **environment):
        sources = [textwrap.dedent(cell) for cell in cells]
        return script(
            f"""
            from IPython.core.interactiveshell import InteractiveShell
            shell = InteractiveShell.instance()
            shell.run_line_magic("colors", "nocolor")
            for source in {sources!r}:
                shell.run_cell(source, store_history=True)
            """,
            **environment,
        )

    return run_cells


def test_import_brings_in_nothing_heavy(script):
    out = script(f"import sys, hpu_magic; print([m for m in {HEAVY} if m in sys.modules])")
    assert out.strip() == "[]"


def test_load_ext_brings_in_nothing_heavy_and_says_once_what_there_is(notebook):
    out = notebook(
        "%load_ext hpu_magic",
        f"import sys; print([m for m in {HEAVY[:-1]} if m in sys.modules])",
        "ours = [name.split('.')[1:3] for name in sys.modules if name.startswith('hpu_magic.')]",
        "print(*{'.'.join(parts) for parts in ours if parts[0] != 'magics'})",
    )
    first, second, ours = out.strip().splitlines()
    assert "SIMULATED" in first
    assert second == "[]"
    assert set(ours.split()) == AT_LOAD


def test_plain_functions_are_found_and_listed():
    for name in ("to", "mode", "autocast", "memory", "time", "status", "fit", "memory_live"):
        assert callable(getattr(hpu_magic, name))
        assert name in dir(hpu_magic)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(hpu_magic, "nothing")  # noqa: B009


def test_script_without_a_card_is_told_once_that_it_is_simulated(tmp_path):
    code = (
        "import hpu_magic, torch\nx = hpu_magic.to(torch.ones(1))\ny = hpu_magic.to(x)\n"
        "print(y.device)"
    )
    settings = {**os.environ, "HPU_MAGIC_CARDS_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "hpu:0\n"
    assert done.stderr.count("SIMULATED") == 1


def test_cpu_work_before_load_ext_changes_nothing(notebook):
    out = notebook(
        "import torch; a = torch.ones(3) * 2",
        "%load_ext hpu_magic",
        "x = torch.ones(2, device='hpu', requires_grad=True); (x * 2).sum().backward()",
        "print(x.grad.device)",
    )
    assert out.strip().splitlines()[-1] == "hpu:0"


def test_too_late_is_one_sentence_that_offers_the_restart(notebook):
    out = notebook(
        "import torch; torch.ones(1, requires_grad=True).sum().backward()", "%load_ext hpu_magic"
    )
    assert "Traceback" not in out
    assert "%hpu_mode --restart" in out


def test_status_before_torch_and_before_a_card(notebook, tmp_path):
    out = notebook(
        "%load_ext hpu_magic",
        "%hpu",
        "import sys; print('torch' in sys.modules)",
        "import torch",
        "%hpu",
        "print(torch.hpu.is_initialized())",
        HPU_MAGIC_CARDS_DIR=str(tmp_path),
    )
    assert "SIMULATED" in out
    assert "(not imported)" in out
    assert "none taken yet: 8 of 8 are free" in out
    assert "\nFalse\n" in out
    assert out.strip().endswith("False")


def test_status_with_a_card_tells_owner_memory_and_mode(run, shell, torch):
    shell.user_ns["x"] = torch.ones(1 << 18, device="hpu")
    cell = run("state = %hpu\nstate")
    state = cell.result
    assert state.simulated
    assert state.card.generation == "GAUDI2"
    assert state.in_use == torch.hpu.memory_allocated()
    assert state.limit == torch.hpu.memory_stats()["Limit"]
    assert state.mode.loaded == "eager"
    assert state.versions == {
        "torch": torch.__version__,
        "bridge": f"simulated by hpu_magic {hpu_magic.__version__}",
        "driver": torch.hpu.get_device_capability(),
    }
    assert "owned by this process" in cell.out
    assert hpu_magic.status().card.module_id == state.card.module_id
    assert [one.pid for one in state.card.holders] == [os.getpid()]


def test_status_names_the_process_that_holds_another_card(run, holder):
    cell = run("%hpu")
    assert f"held by process {holder.pid} ({os.path.basename(sys.executable)} -c" in cell.out
    assert "S3CRET" not in cell.out + repr(cell.result) + cell.result._repr_html_()


def test_busy_machine_is_a_sentence_that_names_the_holder(notebook, tmp_path):
    """Two notebooks, one card."""
    out = notebook(
        "%load_ext hpu_magic",
        "import os, subprocess, sys, torch",
        "other = subprocess.Popen([sys.executable, '-c', \"import torch; "
        "torch.ones(1, device='hpu'); print(flush=True); input()\", 'S3CRET'], "
        "stdin=subprocess.PIPE, stdout=subprocess.PIPE, "
        "env={**os.environ, 'HPU_MAGIC_SIMULATOR': '1'})\n"
        "other.stdout.readline(); print('holder', other.pid)",
        "model = torch.nn.Linear(1, 1)",
        "sys.stderr = sys.stdout",
        "%hpu_to model",
        "print(model.weight.device)",
        "other.communicate(b'.')",
        HPU_MAGIC_CARDS_DIR=str(tmp_path),
        HPU_MAGIC_CARDS="1",
    )
    holder = out.split("holder ")[1].split()[0]
    (sentence,) = [line for line in out.splitlines() if "Device acquire failed" in line]
    assert "UsageError" in sentence
    assert holder in out.split("Device acquire failed")[1]
    assert "S3CRET" not in out
    assert "\ncpu\n" in out


def test_refusal_that_names_nobody_gets_a_second_sentence_with_the_holders(torch, monkeypatch):
    """As a real card's bridge refuses."""
    refusal = "synStatus=8 [Device not found] Device acquire failed."
    held = [
        monitor.CardReading(index, index, "HL-225", "GAUDI2", False, None, None, holders=(holder,))
        for index, holder in enumerate(
            (
                monitor.Holder(7, "train.py", "ann"),
                monitor.Holder(8, "first.ipynb", "ada", 7300.0),
            )
        )
    ]
    seen = monitor.Snapshot(tuple(held), "hlml")

    def refuse():
        raise RuntimeError(refusal)

    monkeypatch.setattr(torch.hpu, "init", refuse)
    monkeypatch.setattr(monitor, "snapshot", lambda: seen)
    with pytest.raises(HPUError) as refused:
        hpu_magic.to(torch.nn.Linear(1, 1))
    sentence = (
        f"{refusal} Cards are held (HPU 1 by process 8 (first.ipynb, idle for 2 h), "
        "HPU 0 by process 7 (train.py)): shut down a kernel or end a process that holds a card, "
        "then try again."
    )
    assert str(refused.value) == sentence
    refusal += f" {sentence[len(refusal) + 1 :]}"
    with pytest.raises(HPUError) as refused:
        hpu_magic.to(torch.nn.Linear(1, 1))
    assert str(refused.value) == sentence
    refusal = "synStatus=8 [Device not found] Device acquire failed. No devices found."
    with pytest.raises(HPUError) as refused:
        hpu_magic.to(torch.nn.Linear(1, 1))
    assert str(refused.value) == refusal


@pytest.fixture
def holder(shell):
    """Another process that holds a card."""
    code = "import torch; torch.ones(1, device='hpu'); print('ready', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--token=S3CRET"],
        env={**os.environ, "HPU_MAGIC_SIMULATOR": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().strip() == "ready"
    yield process
    process.communicate("\n", timeout=60)
