"""Test the complete lists of completions for command lines, in notebooks and in a terminal."""

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.terminal.ptutils import IPythonPTCompleter
from jupyter_client.manager import start_new_kernel
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

VARIABLES = """
import torch
import lightning.pytorch as pl
from torch.utils.data import DataLoader

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("scale", torch.ones(1))

class Holder:
    def __init__(self):
        self.inner, self.number = net, 3
    @property
    def model(self) -> torch.nn.Module:
        return net
    @property
    def broken(self) -> torch.Tensor:
        raise RuntimeError("broken")
    @property
    def untyped(self):
        raise SystemExit

net = Net()
holder = Holder()
trainer = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, number, text = torch.ones(2), 7, "text"
batch, plain, nested = (x, x), [1, 2], {"a": [x]}
loader = DataLoader([1, 2])
"""

MOVABLE = ["batch", "nested", "net", "optimizer", "x"]
TENSORS = ["x"]
FLAG = "PT_HPU_LAZY_MODE"
AUTOCAST = ["--all", "--dtype", "--fp32", "--level", "--lower", "--output", "--restart"]
TO = ["--device", "--dtype", "--output"]
FIT = ["--interval", "--output", "--panel"]
CAPTURE = ["--inputs", "--output", "--restart", "--warmup"]

# A line with "|" at the cursor, and all completions.
LISTS = [
    ("%hpu |", ["--output"]),
    ("%hpu --|", ["--output"]),
    ("%hpu_to |", MOVABLE),
    ("%hpu_to ne|", ["nested", "net"]),
    ("%hpu_to nu|", []),
    ("%hpu_to net --|", TO),
    ("%hpu_to net -|", [*TO, "-o"]),
    ("%hpu_to net --|dtype bf16", TO),
    ("%hpu_to net --d|type", ["--device", "--dtype"]),
    ("%hpu_to net --| --dtype bf16", ["--device", "--output"]),
    ("%hpu_to net --dtype bf16 --|", ["--device", "--output"]),
    ("%hpu_to net --dtype |", ["bf16", "fp16", "fp32"]),
    ("%hpu_to net --dt |", ["bf16", "fp16", "fp32"]),
    ("%hpu_to net --dtype f|p", ["fp16", "fp32"]),
    ("%hpu_to net --dtype=f|", ["fp16", "fp32"]),
    ("%hpu_to net --dtype=|", ["bf16", "fp16", "fp32"]),
    ("%hpu_to net --dtype x|", []),
    ("%hpu_to net --nothing=|", []),
    ("%hpu_to net --device |", ["cpu", "hpu"]),
    ("%hpu_to --dtype bf16 |", MOVABLE),
    ("%hpu_to net |", ["batch", "nested", "optimizer", "x"]),
    ("%hpu_to net x| y", ["x"]),
    ("%hpu_to net,x|", ["x"]),
    ('%hpu_to "ne|', ["nested", "net"]),
    ("%hpu_to 'x' |", ["batch", "nested", "net", "optimizer"]),
    ("%hpu_to net.|", ["net.layer", "net.scale"]),
    ("%hpu_to net.layer.|", ["net.layer.bias", "net.layer.weight"]),
    ("%hpu_to holder.|", ["holder.inner", "holder.model"]),
    ("%hpu_to trainer.mo|", []),
    ("%hpu_to missing.|", []),
    ("moved = %hpu_to --|", TO),
    ("moved, b[0] = %hpu_to ba|", ["batch"]),
    ("x = 1\n%hpu_mode |\ny = 2", ["eager", "lazy"]),
    ("for a in b:\n    %hpu_mode l|", ["lazy"]),
    ("%hpu_mode |", ["eager", "lazy"]),
    ("%hpu_mode --|", ["--output", "--restart"]),
    ("%hpu_mode lazy |", ["--output", "--restart"]),
    ("%hpu_mode lazy --restart |", ["--output"]),
    ("%hpu_mode lazy e|", []),
    ("hpu_mode |", ["eager", "lazy"]),
    ("hpu_to net --|", TO),
    ("%hpu_autocast |", ["off", "on"]),
    ("%hpu_autocast on |", AUTOCAST),
    ("%hpu_explain_autocast |", ["net"]),
    ("%hpu_explain_autocast net --inputs |", ["batch", "x"]),
    ("%hpu_explain_autocast net --inputs x,b|", ["batch"]),
    ("%hpu_autocast --|", AUTOCAST),
    ("%%hpu_autocast |", ["off", "on"]),
    ("%%hpu_autocast --dtype bf16 --level |", ["O1", "O2"]),
    ("%%hpu_autocast --dtype bf16 --le|", ["--level"]),
    ("%%hpu_autocast --lower default,linear,logs|", ["logsumexp"]),
    ("%%hpu_autocast --lower nothing_such|", []),
    ("%hpu_flags PT_HPU_LAZY_M|", [FLAG]),
    ("%hpu_flags PT_HPU_LAZY_MODE=|", [f"{FLAG}=0", f"{FLAG}=1"]),
    ("%hpu_flags NOTHING=|", []),
    ("%hpu_flags PT_HPU_LAZY_MODE --|", ["--output", "--restart"]),
    ("%hpu_ledger |", ["last", "off", "on"]),
    ("%hpu_ledger o|", ["off", "on"]),
    ("%hpu_ledger on --show graphs,pe|", ["peak"]),
    ("%hpu_restart |", ["--mode", "--output"]),
    ("%hpu_restart # a comment |", []),
    ("%hpu_restart # --|", []),
    ("%hpu_to ne| # net", ["nested", "net"]),
    ("%hpu_memory |", ["--all", "--output"]),
    ("%%hpu_memory -|", ["--all", "--output", "-o"]),
    ("%hpu_memory -o |", []),
    ("%hpu_memory --output te|", []),
    ("%hpu_fit |", ["trainer"]),
    ("%hpu_fit trainer |", ["net"]),
    ("%hpu_fit trainer net |", ["loader"]),
    ("%hpu_fit trainer net loader |", FIT),
    ("%hpu_fit trainer net loader te|", []),
    ("%hpu_fit --interval |", []),
    ("%%hpu_fit |", FIT),
    ("%hpu_memory_live |", ["off", "on"]),
    ("%hpu_memory_live --history 1|", []),
    ("%hpu_time --|", ["--output", "--repeats", "--runs"]),
    ("%hpu_time -n 3 --|", ["--output", "--repeats"]),
    ("%hpu_time -n |", []),
    ("%%hpu_time |", ["--output", "--repeats", "--runs"]),
    ("%%hpu_capture --inputs x,|", []),
    ("%%hpu_capture --inputs |", TENSORS),
    ("%%hpu_capture step --|", CAPTURE),
    ("%%hpu_capture |", CAPTURE),
    ("%hpu_replay |", ["--output", "--runs"]),
    ("%hpu_graphs --delete |", []),
    ("%hpu_wrap |", ["net"]),
    ("%hpu_wrap net --in|", ["--inputs"]),
    ("%hpu_wrap net --inputs |", ["batch", "x"]),
    ("%%hpu_profile --|", ["--dir", "--no-trace", "--output", "--trace"]),
    ("%%hpu_profile --dir not/there/|", []),
    ("%%hpu_from_cuda --|", ["--mark-steps", "--no-mark-steps", "--output", "--show"]),
]


def cursor(line):
    return line.replace("|", "", 1), line.index("|")


@pytest.fixture
def in_process(shell):
    shell.run_cell(VARIABLES)
    return shell


@pytest.mark.parametrize("jedi", [True, False])
def test_completer_offers_only_matching_completions(in_process, jedi):
    in_process.Completer.use_jedi = jedi
    for marked, expected in LISTS:
        line, at = cursor(marked)
        with provisionalcompleter():
            found = list(in_process.Completer.completions(line, at))
        assert [item.text for item in found] == expected, marked
        for each in found:
            # The replaced text is a prefix of the completion.
            assert each.text.startswith(line[each.start : each.end]), marked
            assert each.end == at


def test_terminal_offers_only_matching_completions(in_process, monkeypatch):
    # A terminal's shell has this attribute.
    monkeypatch.setattr(in_process, "min_elide", 30, raising=False)
    completer = IPythonPTCompleter(shell=in_process)
    for marked, expected in LISTS:
        line, at = cursor(marked)
        found = completer.get_completions(Document(line, at), CompleteEvent())
        # A terminal shows a value after "=" without the name.
        assert [each.text for each in found] in (
            expected,
            [item.rpartition("=")[2] for item in expected],
        )


@pytest.fixture(scope="module")
def client(forked_kernels):
    with forked_kernels():
        manager, client = start_new_kernel(kernel_name="python3")
    try:
        reply = client.execute_interactive("%load_ext hpu_magic\n" + VARIABLES, timeout=120)
        assert reply["content"]["status"] == "ok"
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("experimental", [True, False])
def test_kernel_offers_only_matching_completions(client, experimental):
    kernel = f"get_ipython().kernel.use_experimental_completions = {experimental}"
    client.execute_interactive(kernel, timeout=120)
    for marked, expected in LISTS:
        line, at = cursor(marked)
        reply = client.complete(line, at, reply=True, timeout=60)["content"]
        assert reply["matches"] == expected, marked
        assert reply["cursor_end"] == at
        begun = line[reply["cursor_start"] : at]
        assert all(each.startswith(begun) for each in expected), marked


def test_names_of_captured_graphs_are_completed(lazy):
    lazy("x = torch.ones(2, device='hpu')")
    assert not lazy("%%hpu_capture step --inputs x\ny = x * 2").error
    for line in ("%hpu_replay ", "%hpu_graphs --delete ", "%%hpu_capture "):
        source = f"[one.text for one in get_ipython().Completer.completions({line!r}, {len(line)})]"
        quiet = "with __import__('IPython').core.completer.provisionalcompleter(): found = "
        lazy(quiet + source)
        assert lazy.value("found") == ["step"]


def names(shell, line):
    with provisionalcompleter():
        return {completion.text for completion in shell.Completer.completions(line, len(line))}


@pytest.mark.parametrize(
    "line",
    ["%hpu_time te", "%hpu_time -n 3 te", "te", "hpu_to = te", "%%time\n%%hpu_to te", "%timeit te"],
)
def test_ipython_completes_code_after_a_magic(in_process, line):
    assert "text" in names(in_process, line)


def test_line_without_percent_sign_is_python_without_automagic(in_process):
    in_process.automagic = False
    try:
        assert "number" in names(in_process, "hpu_to nu")
    finally:
        in_process.automagic = True
    in_process.user_ns["hpu_to"] = 1
    assert "number" in names(in_process, "hpu_to nu")


def test_each_command_offers_exactly_its_options(in_process):
    magics = in_process.magics_manager.magics
    for kind, mark in (("line", "%"), ("cell", "%%")):
        for name in [magic for magic in magics[kind] if magic.startswith("hpu")]:
            actions = magics[kind][name].parser._actions
            long = {
                spelling
                for each in actions
                for spelling in each.option_strings
                if spelling[:2] == "--"
            }
            assert names(in_process, f"{mark}{name} --") == long, name


def test_folders_are_completed_for_a_folder_option(in_process, tmp_path):
    for name in ("traces", "trunk", ".hidden", "with space"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").touch()
    found = names(in_process, f"%%hpu_profile --dir {tmp_path}/tr")
    assert found == {f"{tmp_path}/traces/", f"{tmp_path}/trunk/"}


def test_json_files_are_completed_for_a_configuration(in_process, tmp_path):
    for name in ("maxabs.json", "max.json", "maxabs.txt", "other.json"):
        (tmp_path / name).touch()
    found = names(in_process, f"%hpu_fp8_quantize --config {tmp_path}/max")
    assert found == {f"{tmp_path}/max.json", f"{tmp_path}/maxabs.json"}
    assert names(in_process, f"%hpu_fp8_quantize --config {tmp_path}/missing/") == set()


def test_unload_ext_removes_the_completer(in_process):
    in_process.run_line_magic("reload_ext", "hpu_magic")
    in_process.run_line_magic("unload_ext", "hpu_magic")
    try:
        ours = [
            matcher for matcher in in_process.Completer.custom_matchers if "hpu" in repr(matcher)
        ]
        assert ours == []
    finally:
        in_process.run_line_magic("load_ext", "hpu_magic")
