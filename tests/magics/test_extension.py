"""Test %load_ext hpu_magic, import hpu_magic, and %hpu."""

import functools
import os
import sys
import textwrap

import pytest
from started_process import completed, started_python

import hpu_magic
from hpu_magic import monitor
from hpu_magic.errors import HPUError

HEAVY = ["torch", "bokeh", "ipywidgets", "lightning", "pytorch_lightning", "numpy", "psutil"]
# Modules of this package that may be imported before a command runs.
AT_LOAD = {
    *("commands", "commands.cards", "commands.device", "commands.dry_runs", "commands.graphs"),
    *(
        "commands.advising",
        "commands.declaration",
        "commands.measuring",
        "commands.parameters",
        "commands.planning",
        "commands.porting",
        "commands.precision",
        "commands.serving",
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
    *("sessions", "sessions.activity", "sessions.files", "sessions.fit"),
    *("sessions.reading", "sessions.this_process"),
    *("lightning", "lightning.habana", "lightning.hook", "lightning.names"),
    *("runtime", "runtime.device", "runtime.start"),
    *("simulator", "simulator.activation", "simulator.cards", "simulator.finder"),
}


def run_cells(script, *cells, **options):
    """Run cells in a separate IPython process and return the printed text."""
    sources = [textwrap.dedent(cell) for cell in cells]
    return script(
        f"""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("colors", "nocolor")
        for source in {sources!r}:
            shell.run_cell(source, store_history=True)
        """,
        **options,
    )


@pytest.fixture
def notebook(script):
    """Run cells in a new IPython process."""
    return functools.partial(run_cells, script)


@pytest.fixture
def forked_notebook(forked_script):
    """Like `notebook`, but faster; not suitable for tests of imports."""
    return functools.partial(run_cells, forked_script, hides_torch=True)


def test_import_of_hpu_magic_imports_no_large_package(script):
    out = script(f"import sys, hpu_magic; print([m for m in {HEAVY} if m in sys.modules])")
    assert out.strip() == "[]"


def test_load_ext_imports_no_large_package_and_announces_the_simulator(notebook):
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


def test_public_functions_are_attributes_of_the_package():
    for name in ("to", "mode", "autocast", "memory", "time", "status", "fit", "memory_live"):
        assert callable(getattr(hpu_magic, name))
        assert name in dir(hpu_magic)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(hpu_magic, "nothing")  # noqa: B009


def test_script_announces_the_simulator_once(tmp_path):
    code = (
        "import hpu_magic, torch\nx = hpu_magic.to(torch.ones(1))\ny = hpu_magic.to(x)\n"
        "print(y.device)"
    )
    settings = {**os.environ, "HPU_MAGIC_CARDS_DIR": str(tmp_path)}
    done = completed(sys.executable, "-c", code, env=settings)
    assert done.stdout == "hpu:0\n"
    assert done.stderr.count("SIMULATED") == 1


def test_load_ext_works_after_cpu_tensors(forked_notebook):
    out = forked_notebook(
        "import torch; a = torch.ones(3) * 2",
        "%load_ext hpu_magic",
        "x = torch.ones(2, device='hpu', requires_grad=True); (x * 2).sum().backward()",
        "print(x.grad.device)",
    )
    assert out.strip().splitlines()[-1] == "hpu:0"


def test_load_ext_after_autograd_suggests_a_restart(forked_notebook):
    out = forked_notebook(
        "import torch; torch.ones(1, requires_grad=True).sum().backward()", "%load_ext hpu_magic"
    )
    assert "Traceback" not in out
    assert "%hpu_mode --restart" in out


def test_status_neither_imports_torch_nor_takes_a_card(notebook, tmp_path, golden):
    out = notebook(
        "%load_ext hpu_magic",
        "%hpu",
        "import sys; print('torch' in sys.modules)",
        "import torch",
        "%hpu",
        "print(torch.hpu.is_initialized())",
        HPU_MAGIC_CARDS_DIR=str(tmp_path),
    )
    golden("overview", out)
    assert "\nFalse\n" in out
    assert out.strip().endswith("False")


def test_status_contains_card_memory_mode_and_versions(run, shell, torch):
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
    assert "held by this process" in cell.out
    assert hpu_magic.status().card.module_id == state.card.module_id
    assert [each.pid for each in state.card.holders] == [os.getpid()]


def test_status_of_one_card_lists_its_readings_and_holders(run, shell, torch):
    shell.user_ns["x"] = torch.ones(1 << 20, device="hpu")
    cards = {bool(card.holders): card.module_id for card in run("%hpu").result.machine.cards}
    held = run(f"%hpu {cards[True]}")
    allocated = torch.hpu.memory_allocated() / 2**20
    assert allocated >= 4
    assert f"HPU {cards[True]}: GAUDI2, simulated\n" in held.out
    assert dict(held.result.rows()) == {
        "memory": f"{allocated:.2f} MiB / 96 GiB",
        "held by": f"this process ({os.getpid()})",
    }
    assert dict(run(f"%hpu {cards[False]}").result.rows())["held by"] == "no process"


def test_status_names_the_holder_of_another_card(run, holder):
    cell = run("%hpu")
    assert f"held by process {holder.pid} ({os.path.basename(sys.executable)} -c" in cell.out
    assert "S3CRET" not in cell.out + repr(cell.result) + cell.result._repr_html_()


def test_error_without_free_cards_names_the_holder(forked_notebook, tmp_path):
    # Two notebooks, one card.
    out = forked_notebook(
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


def test_vendor_error_without_holders_is_completed_with_them(torch, monkeypatch):
    # The vendor's bridge raises this error.
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
    """A process that holds another card."""
    code = "import torch; torch.ones(1, device='hpu'); print('ready', flush=True); input()"
    simulated = {**os.environ, "HPU_MAGIC_SIMULATOR": "1"}
    with started_python("-c", code, "--token=S3CRET", env=simulated) as process:
        assert process.printed == "ready\n"
        yield process
