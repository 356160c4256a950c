"""Test the command %%hpu_dry_run and the function hpu_magic.dry_run."""

import sys

import psutil
import pytest

import hpu_magic
from hpu_magic.dry_runs import process
from hpu_magic.errors import HPUError


@pytest.fixture(scope="module", autouse=True)
def _torch():
    import torch  # noqa: F401  # the shell's namespace can then contain modules


def test_cell_with_copied_variables(new_processes, succeeds):
    succeeds(
        "import torch\nclass Net(torch.nn.Linear):\n    scale = 2\n"
        "net = Net(3, 4)\nx = torch.arange(3.0).to('hpu')\nrows = 5"
    )
    cell = succeeds(
        "%%hpu_dry_run --card gaudi3 --push net,x,rows --value cell:6=0.25 -o report\n"
        "import sys, torch\n"
        "print('rows', rows, net.scale, x.device.type)\n"
        "print('warned', file=sys.stderr)\n"
        "y = net.to('hpu')(x.expand(rows, 3)).sum()\n"
        "print(y.item())\n"
        "{'last': rows}\n"
    )
    report = cell.result
    assert cell.out.startswith("rows 5 2 hpu\n0.25\n{'last': 5}\n")
    assert cell.err == "warned\n"
    assert (report.card, report.status, report.script) == ("GAUDI3", 0, "the cell")
    assert report.composition["parameters"] == 3 * 4 * 4 + 4 * 4
    [line] = report.stand_ins
    assert (line.place, line.text) == ("cell:6", "print(y.item())")
    assert report.unused_values == []
    assert succeeds("report").result is report
    assert succeeds("next(net.parameters()).device.type, x.tolist()").result == (
        "cpu",
        [0.0, 1.0, 2.0],
    )


def test_error_shows_the_line_of_the_cell(succeeds):
    cell = succeeds("%%hpu_dry_run\nimport torch\n\ntorch.ones(2, device='hpu') @ 3\n")
    assert 'File "cell", line 4, in <module>\n    torch.ones(2' in cell.err
    assert cell.result.status == 1
    assert cell.result.error_line.place == "cell:4"
    assert "It ended in cell:4 with TypeError" in str(cell.result)


class _Watched:
    """A replacement for stdout that creates a file when a certain word is written."""

    def __init__(self, word, file):
        self.text, self._word, self._file = "", word, file

    def write(self, text):
        self.text += text
        if self._word in self.text:
            self._file.touch()

    def flush(self):
        pass


def test_output_appears_while_the_cell_runs(tmp_path, monkeypatch):
    file = tmp_path / "seen"
    shown = _Watched("first", file)
    monkeypatch.setattr(sys, "stdout", shown)
    code = f"""
import os, time
print("first")
until = time.monotonic() + 60
while not os.path.exists({str(file)!r}) and time.monotonic() < until:
    time.sleep(0.01)
print("seen", os.path.exists({str(file)!r}))
"""
    hpu_magic.dry_run(code=code)
    assert shown.text == "first\nseen True\n"


def test_interrupt_ends_the_process_of_the_cell(
    new_processes, rejected, succeeds, tmp_path, monkeypatch
):
    monkeypatch.setattr(process, "_AFTER_INTERRUPT", 100.0)  # for a busy machine
    pid = tmp_path / "pid"
    message = rejected(
        "%%hpu_dry_run -o report\n"
        "import os, pathlib, signal, time\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(100)\n"
    )
    assert message == "%%hpu_dry_run was interrupted; its process has ended."
    assert not psutil.pid_exists(int(pid.read_text()))
    assert "it was interrupted." in succeeds("report").result.title()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%hpu_dry_run\nimport os\n!ls\n", "runs plain Python, but line 3 is '!ls'"),
        ("%%hpu_dry_run\nx = (\n", "Line 2 of the cell is not Python: '(' was never closed."),
        ("%%hpu_dry_run --push missing\nx = 1\n", "Unknown variable 'missing'"),
        ("%%hpu_dry_run --steps 0\nx = 1\n", "The number of steps must be at least 1, got 0."),
        ("%%hpu_dry_run --card gaudi4\nx = 1\n", "needs gaudi, gaudi2 or gaudi3 after --card"),
        ("%%hpu_dry_run --value 4=1\nx = 1\n", "'4=1' is not a valid value"),
    ],
)
def test_invalid_cell_is_refused_without_a_traceback(rejected, cell, message):
    assert message in rejected(cell)


def test_variable_that_cannot_be_copied_is_refused(rejected, succeeds):
    succeeds("lock = __import__('threading').Lock()")
    assert "lock (a lock) cannot be sent" in rejected("%%hpu_dry_run --push lock\nx = 1\n")


def test_function_runs_a_script_with_arguments(tmp_path, capfd):
    script = tmp_path / "train.py"
    script.write_text("import sys; print(sys.argv[1:])")
    assert hpu_magic.dry_run(str(script), ["--batch", "64"], steps=2).status == 0
    assert capfd.readouterr().out == "['--batch', '64']\n"
    with pytest.raises(HPUError, match="either a script or code"):
        hpu_magic.dry_run()
