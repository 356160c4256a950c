"""A real shell over the simulated device, in a process whose cards nobody else sees."""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPython
from lazy_process import LazyProcess

_PRIVATE = tempfile.mkdtemp(prefix="hpu_magic_tests_")
atexit.register(shutil.rmtree, _PRIVATE, ignore_errors=True)
os.environ["HPU_MAGIC_CARDS_DIR"] = os.path.join(_PRIVATE, "cards")
os.environ["JUPYTER_DATA_DIR"] = os.path.join(_PRIVATE, "jupyter")
os.environ["JUPYTER_RUNTIME_DIR"] = os.path.join(_PRIVATE, "runtime")
os.environ["IPYTHONDIR"] = os.path.join(_PRIVATE, "ipython")
os.environ["HABANA_LOGS"] = os.path.join(_PRIVATE, "logs")
for _folder in ("cards", "jupyter", "runtime", "ipython"):
    os.makedirs(os.path.join(_PRIVATE, _folder))
# Models are built from configurations; nothing is fetched.
os.environ["HF_HUB_OFFLINE"] = "1"
# A terminal session by default: no notebook, no server.
for _variable in ("JPY_SESSION_NAME", "JPY_PARENT_PID", "PT_HPU_LAZY_MODE"):
    os.environ.pop(_variable, None)
# Started in the background, a process ignores interrupts; tests send some to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)
# What lazy mode and compiled graphs promise of a tensor is compared with what the kernels give.
os.environ["HPU_MAGIC_CHECK_GEOMETRY"] = "1"
# The suites of the device run in both modes, and a process has one.
if "HPU_MAGIC_TEST_LAZY" in os.environ:
    os.environ["PT_HPU_LAZY_MODE"] = "1"


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported to collect the tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Have a test's processes start as from a user's shell: with nothing that a bridge told.

    Of the tests before it, one may have loaded the bridge or turned the simulator on in here.
    """
    if "HPU_MAGIC_TEST_LAZY" not in os.environ:
        os.environ.pop("PT_HPU_LAZY_MODE", None)
    os.environ.pop("HPU_MAGIC_PYTHON", None)


SPREAD = (
    "test_operators",
    "test_modes",
    "test_compiled_operators",
    "test_compiled_memory_formats",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests on one worker, where they share its fixtures, but spread the longest."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            spread = Path(path).stem in SPREAD
            return nodeid if spread else path

    return ByFile(config, log)


@dataclass(frozen=True)
class Cell:
    """What running a cell gave."""

    result: Any
    out: str
    err: str
    error: BaseException | None


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the files of sessions that replaces the user's folder."""
    from hpu_magic import private_folder
    from hpu_magic.sessions.publishing import _here

    # The shell of other tests may have published its session.
    monkeypatch.setattr(_here, "session", None)
    monkeypatch.setattr(_here, "_has_file", False)
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (shared,))
    return shared / f"hpu_magic-{os.geteuid()}" / "sessions"


@pytest.fixture(scope="session")
def _session_shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    settings = Config({"HistoryManager": {"hist_file": ":memory:"}})
    shell = InteractiveShell.instance(config=settings)
    shell.run_line_magic("colors", "nocolor")
    shell.run_line_magic("load_ext", "hpu_magic")
    return shell


@pytest.fixture
def shell(_session_shell: Any) -> Iterator[Any]:
    """A real InteractiveShell with the extension loaded and an empty namespace."""
    # It collects garbage; the modules, half a million objects, need not be looked through again.
    _session_shell.reset(new_session=True)
    gc.freeze()
    environment = dict(os.environ)
    yield _session_shell
    os.environ.clear()
    os.environ.update(environment)
    _session_shell.run_line_magic("hpu_autocast", "off")
    _session_shell.run_line_magic("hpu_ledger", "off")
    _session_shell.ast_node_interactivity = "last_expr"


@pytest.fixture
def run(shell: Any, capfd: pytest.CaptureFixture[str]) -> Callable[[str], Cell]:
    """Run a cell and return its value, what it wrote, and the exception it ended with."""

    def run_cell(source: str) -> Cell:
        capfd.readouterr()
        result = shell.run_cell(source, store_history=True)
        out, err = capfd.readouterr()
        error = result.error_before_exec or result.error_in_exec
        return Cell(result.result, out, err, error)

    return run_cell


def _settings(simulated: bool, environment: dict[str, str]) -> dict[str, str]:
    settings = dict(os.environ)
    if simulated:
        settings["HPU_MAGIC_SIMULATOR"] = "1"
    if "HPU_MAGIC_CARD" in environment:  # a machine's cards are of one
        settings["HPU_MAGIC_CARDS_DIR"] += f"-{environment['HPU_MAGIC_CARD']}"
    return settings | environment


@pytest.fixture(scope="session")
def script() -> Callable[..., str]:
    """Run Python code in a process of its own and return what it printed."""

    def run_script(code: str, *, simulated: bool = False, **environment: str) -> str:
        settings = _settings(simulated, environment)
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_script


@pytest.fixture(scope="session")
def forked_python() -> Iterator[ForkedPython]:
    python = ForkedPython()
    yield python
    python.close()


@pytest.fixture(scope="session")
def forked_script(forked_python: ForkedPython) -> Callable[..., str]:
    """As `script`, seconds sooner; for all but how a process starts, imports and is taken apart."""

    def run_script(code: str, *, simulated: bool = False, **environment: str) -> str:
        return forked_python(textwrap.dedent(code), _settings(simulated, environment))

    return run_script


# Python runs this at its start: the binding has the library's place built in.
_FIND_LIBRARY = """
from pyhlml.hlml_lib import LibHLML
LibHLML.__init__.__defaults__ = ({library!r},)
"""


@pytest.fixture(scope="session")
def hlml_cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which the real binding finds the cards of a small library built here."""
    pytest.importorskip("pyhlml.hlml_lib")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc or gcc) installed")
    folder = tmp_path_factory.mktemp("hlml")
    source, built = Path(__file__).with_name("hlml_library.c"), folder / "libhlml.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
    (folder / "sitecustomize.py").write_text(_FIND_LIBRARY.format(library=str(built)))
    return {"PYTHONPATH": str(folder)}


@dataclass(frozen=True)
class Answer:
    """What a kernel sent back for a cell."""

    printed: str
    shown: list[dict[str, Any]]
    error: str

    @property
    def text(self) -> str:
        """Everything that the cell shows, as text."""
        texts = [data.get("text/plain", "") for data in self.shown]
        return "\n".join([self.printed, *texts, self.error])


class LazyNotebook:
    """A kernel in lazy mode with the extension loaded."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, source: str) -> Answer:
        """Run a cell."""
        request = self._client.execute(source)
        printed, shown, error = "", [], ""
        while True:
            message = self._client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed += content["text"]
            elif "data" in content:
                shown.append(content["data"])
            elif message["msg_type"] == "error":
                error = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif content.get("execution_state") == "idle":
                return Answer(printed, shown, error)

    def value(self, expression: str) -> Any:
        """Return what an expression is in the kernel, as far as JSON carries it."""
        answer = self(f"import json; print(json.dumps({expression}))")
        assert not answer.error, answer.error
        return json.loads(answer.printed.splitlines()[-1])


@pytest.fixture(scope="module")
def lazy() -> Iterator[LazyNotebook]:
    """A kernel in lazy mode, the same one for all tests of a module."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(
        kernel_name="python3", env={**os.environ, "PT_HPU_LAZY_MODE": "1"}
    )
    try:
        notebook = LazyNotebook(client)
        notebook("%load_ext hpu_magic\nimport torch\nfrom torch import nn")
        notebook("import habana_frameworks.torch.core as htcore")
        yield notebook
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def lazy_process(forked_python: ForkedPython) -> Iterator[LazyProcess]:
    """A bare process in lazy mode, the same one for all tests of a module."""
    process = LazyProcess(forked_python)
    yield process
    process.close()


@pytest.fixture
def own_card(torch: Any) -> str:
    """What headlines call the card of the tests' process: whichever was free when it took one."""
    from hpu_magic import monitor

    torch.hpu.init()
    held = [(one.pid, card.module_id) for card in monitor.snapshot().cards for one in card.holders]
    return f"HPU {dict(held)[os.getpid()]} (simulated GAUDI2)"


@pytest.fixture
def forgetful(shell: Any) -> Iterator[None]:
    """Forget afterwards what the test has the notebook remember."""
    from hpu_magic.runtime.start import restart

    yield
    restart.remember(dict.fromkeys(restart.recall()))


@pytest.fixture
def torch(shell: Any) -> Any:
    """PyTorch with the hpu device behind it."""
    import torch

    return torch


@pytest.fixture
def needs() -> Callable[[str], None]:
    """Skip a test where this release of PyTorch lacks what the test is about."""
    from hpu_magic.simulator import activate

    activate(announce=False)
    from habana_frameworks.torch import _limits

    def skip_without(feature: str) -> None:
        if getattr(_limits, feature) in _limits.missing():
            pytest.skip(_limits.sentence())

    return skip_without


@pytest.fixture
def compile_on_hpu(torch: Any) -> Iterator[Callable[..., Any]]:
    """`torch.compile` for the device, with no memory of other tests' compilations."""
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield lambda function, **options: torch.compile(function, backend="hpu_backend", **options)
    torch._dynamo.reset()


@pytest.fixture
def compilations(torch: Any) -> Iterator[Callable[[], int]]:
    """Number of compilations since the test began."""
    from habana_frameworks.torch.hpu.metrics import metric_localcontext

    with metric_localcontext("graph_compilation") as metric:
        yield lambda: dict(metric.stats())["TotalNumber"]
