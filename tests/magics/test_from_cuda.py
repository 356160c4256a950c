"""``%%hpu_from_cuda`` converts a cell of CUDA code and runs it on the device."""

import pytest
from IPython.core.error import UsageError

TRAINING = """%%hpu_from_cuda
import torch
from torch.cuda.amp import autocast

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(8, 4)
losses = []
for step in range(20):
    optimizer.zero_grad()
    with autocast():
        loss = model(x.to(device)).float().square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    torch.cuda.empty_cache()
[model.weight.device.type, device.type, losses[-1] < 0.1 * losses[0]]
"""


def test_cuda_training_is_shown_as_a_diff_and_runs_on_the_device(run, golden):
    cell = run(TRAINING)
    assert cell.error is None
    assert cell.result == ["hpu", "hpu", True]
    diff, _, displayed = cell.out.partition("Out[")
    assert displayed  # after the diff
    golden("port", diff, varying=False)


def test_lazy_mode_adds_mark_steps(lazy):
    answer = lazy(TRAINING)
    assert not answer.error
    assert answer.text.count("    + ") == 6
    assert "15       loss.backward()\n     +     htcore.mark_step()\n" in answer.text
    assert "16       optimizer.step()\n     +     htcore.mark_step()\n" in answer.text
    assert answer.shown[-1]["text/plain"] == "['hpu', 'hpu', True]"
    [page] = [data["text/html"] for data in answer.shown if "text/html" in data]
    assert "<b>Ported to hpu (simulated GAUDI2): 4 lines changed, 2 added, 1 removed</b>" in page


def test_traceback_shows_line_numbers_of_the_original_cell(run):
    cell = run(
        "%%hpu_from_cuda --mark-steps\nimport torch\nw = torch.ones(2, requires_grad=True)\n"
        "w.sum().backward()\n\n1 / 0  # here"
    )
    assert isinstance(cell.error, ZeroDivisionError)
    assert "----> 6 1 / 0  # here" in cell.out


@pytest.mark.parametrize(
    "under",
    [
        "%%hpu_from_cuda --mark-steps\n%%hpu_autocast",
        "%%hpu_autocast\n%%hpu_from_cuda --mark-steps",
    ],
)
def test_port_works_with_other_cell_magics(run, under):
    cell = run(
        f"{under}\nimport torch\nw = torch.ones(2, 2, device='cuda', requires_grad=True)\n"
        "y = w @ w\ny.sum().backward()\n%time z = y + 1\n[str(y.dtype), z.device.type]"
    )
    assert cell.error is None
    assert cell.result == ["torch.bfloat16", "hpu"]


def test_magics_and_shell_commands_are_kept(run, shell):
    cell = run(
        "%%hpu_from_cuda\nfound = !echo cuda\n%time x = 'plum'\ndevice = 'cuda'\n(found[0], device)"
    )
    assert cell.result == ("cuda", "hpu")
    assert shell.user_ns["x"] == "plum"


def test_python_after_a_line_magic_is_ported(run, shell):
    cell = run(
        "%%hpu_from_cuda\nimport torch\ny = torch.ones(2)\n%time x = y.cuda()\n"
        "for _ in range(2):\n    %timeit -n 1 -r1 -q x + y.cuda()\n"
        "text = '''\n%time cuda()\n'''\n"
        "if 0:\n    best = %timeit -o y.cuda()\n(x.device.type, text)"
    )
    assert cell.error is None
    assert cell.result == ("hpu", "\n%time cuda()\n")
    for line in ("+ %time x = y.to('hpu')", "+     %timeit -n 1 -r1 -q x + y.to('hpu')"):
        assert line in cell.out
    assert "  Line 11: code in a magic or a formatted string is not ported." in cell.out


@pytest.mark.parametrize("magic", ["time", "capture", "hpu_memory"])
def test_cell_below_another_magic_is_ported(run, shell, magic):
    cell = run(f"%%hpu_from_cuda --mark-steps\n%%{magic}\nimport torch\nx = torch.ones(2).cuda()")
    assert cell.error is None
    assert shell.user_ns["x"].device.type == "hpu"
    assert '4 - x = torch.ones(2).cuda()\n    + x = torch.ones(2).to("hpu")' in cell.out


def test_cell_in_another_language_is_unchanged(run):
    cell = run("%%hpu_from_cuda\n%%html\nx = 'cuda'")
    assert "Nothing to port to hpu (simulated GAUDI2)" in cell.out


def test_show_stores_the_report_without_running_the_cell(run, shell):
    cell = run("%%hpu_from_cuda --show -o report\nx = torch.ones(2).cuda()\nimport triton")
    assert cell.error is None
    assert "x" not in shell.user_ns
    report = shell.user_ns["report"]
    assert report.ported == 'x = torch.ones(2).to("hpu")\nimport triton\n'
    assert [(each.line, each.kind) for each in report.findings] == [(3, "missing")]


def test_cell_that_needs_a_gpu_is_shown_but_does_not_run(run, shell):
    cell = run("%%hpu_from_cuda\nx = 1\nfrom flash_attn import flash_attn_func\ny = x.cuda()")
    assert type(cell.error) is UsageError
    assert "Line 3: flash_attn needs a GPU: use habana_frameworks.torch.hpex" in cell.out
    assert '+ y = x.to("hpu")' in cell.out
    assert cell.err == (
        "UsageError: The cell did not run: the code on line 3 has no counterpart. Remove it, or "
        "type %%hpu_from_cuda --show to convert the rest.\n"
    )
    assert "x" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--sho wn", "%%hpu_from_cuda does not take 'wn': type %%hpu_from_cuda\n"),
        ("--mark-stpes", "has no option '--mark-stpes': type %%hpu_from_cuda --mark-steps\n"),
        ("-o 2x", "'2x' cannot be a variable: use a name such as report."),
        ("-o 'x", '%%hpu_from_cuda: a quotation mark in "-o \'x" is not closed.'),
    ],
)
def test_invalid_line_reports_a_usage_error_and_runs_nothing(rejected, shell, line, sentence):
    message = rejected(f"%%hpu_from_cuda {line}\nx = 1")
    assert sentence in f"{message}\n"
    assert "x" not in shell.user_ns


def test_shell_command_over_several_lines_is_refused(run, shell):
    cell = run("%%hpu_from_cuda\n!echo a \\\n  b\nx = 1")
    assert cell.err == (
        "UsageError: A magic or shell command in this cell spans several lines: write it on one "
        "line.\n"
    )
    assert "x" not in shell.user_ns


def test_cuda_device_from_another_cell_is_reported(run):
    run("import torch\ndevice = torch.device('cuda')")
    cell = run("%%hpu_from_cuda --show\nx = torch.ones(2).to(device)")
    assert (
        "Line 2: device was set to device(type='cuda') in another cell: port that cell." in cell.out
    )


def test_run_cell_magic_ports_the_cell(run, shell):
    shell.run_cell_magic("hpu_from_cuda", "", "import torch\nx = torch.ones(2).cuda()\n")
    assert shell.user_ns["x"].device.type == "hpu"
