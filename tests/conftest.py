"""Shared fixtures: a real IPython shell, separate processes and kernels, on private cards."""

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPython
from golden_text import normalized, read_golden, write_golden
from lazy_process import LazyProcess
from notebook_kernel import NotebookKernel, running_kernel
from small_fit import SETUP

gc.disable()  # until all tests are collected, because most of this time is for imports
_PRIVATE = tempfile.mkdtemp(prefix="hpu_magic_tests_")
atexit.register(shutil.rmtree, _PRIVATE, ignore_errors=True)
os.environ["HPU_MAGIC_CARDS_DIR"] = os.path.join(_PRIVATE, "cards")
os.environ["JUPYTER_DATA_DIR"] = os.path.join(_PRIVATE, "jupyter")
os.environ["JUPYTER_RUNTIME_DIR"] = os.path.join(_PRIVATE, "runtime")
os.environ["IPYTHONDIR"] = os.path.join(_PRIVATE, "ipython")
os.environ["HABANA_LOGS"] = os.path.join(_PRIVATE, "logs")
for _folder in ("cards", "jupyter", "runtime", "ipython"):
    os.makedirs(os.path.join(_PRIVATE, _folder))
# Models are built from configurations, without downloads.
os.environ["HF_HUB_OFFLINE"] = "1"
# A terminal session by default: no notebook, no server.
for _variable in ("JPY_SESSION_NAME", "JPY_PARENT_PID", "PT_HPU_LAZY_MODE"):
    os.environ.pop(_variable, None)
# A process started in the background ignores SIGINT, but tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Compare sizes and strides predicted by lazy mode and compiled graphs with the kernels' results.
os.environ["HPU_MAGIC_CHECK_GEOMETRY"] = "1"
# The device tests run in both modes, and the mode of a process is fixed.
if "HPU_MAGIC_TEST_LAZY" in os.environ:
    os.environ["PT_HPU_LAZY_MODE"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the golden files."""
    parser.addoption(
        "--golden",
        action="store_true",
        help="run only the tests with a golden file, and write tests/golden/ from their reports",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only tests with golden files for ``--golden``, and skip `once` tests in lazy mode."""
    if config.option.golden:
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
    if "HPU_MAGIC_TEST_LAZY" in os.environ:
        items[:] = [item for item in items if item.get_closest_marker("once") is None]
    _sort_by_length(items)


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[..., None]:
    """Compare the text of a report with ``tests/golden/NAME.txt``.

    Times and other varying values are replaced, unless the report has none (``varying=False``).
    If `section` is set, the text is compared with this section of the file.
    """

    def compare(name: str, text: str, *, varying: bool = True, section: str = "") -> None:
        text = normalized(text) if varying else f"{text}\n"
        if pytestconfig.option.golden:
            write_golden(name, section, text)
        assert text == read_golden(name, section)

    return compare


def pytest_collection_finish() -> None:
    """Freeze the modules imported during collection, so that the garbage collector skips them."""
    gc.collect()
    gc.freeze()
    gc.enable()


# accelerate and Lightning import DeepSpeed, if it is installed.
_OF_DEEPSPEED = ("PT_HPU_LAZY_ACC_PAR_MODE", "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Undo changes of earlier tests that activated the simulator or imported DeepSpeed."""
    if "HPU_MAGIC_TEST_LAZY" not in os.environ:
        os.environ.pop("PT_HPU_LAZY_MODE", None)
    for name in ("HPU_MAGIC_PYTHON", *_OF_DEEPSPEED):
        os.environ.pop(name, None)
    if (torch := sys.modules.get("torch")) is not None:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True


SPREAD = (
    "test_operators",
    "test_modes",
    "test_compiled_operators",
    "test_compiled_memory_formats",
)


# Folders with the longest files. Their tests start first, so that no worker is alone at the end.
LONG = {
    "distributed",
    "dry_runs",
    "estimates",
    "examples",
    "front_ends",
    "huggingface",
    "lightning",
    "notebooks",
    "parallel",
    "serving",
    "testing",
}


def _sort_by_length(items: list[pytest.Item]) -> None:
    sizes = Counter(item.path for item in items)

    def key(item: pytest.Item) -> tuple[bool, bool, int]:
        path = item.path
        return path.stem in SPREAD, path.parent.name not in LONG, -sizes[path]

    items.sort(key=key)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each file on one worker, so that its tests share fixtures; split the longest files."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            spread = Path(path).stem in SPREAD
            return nodeid if spread else path

    config.option.loadscopereorder = False  # the tests are already sorted
    return ByFile(config, log)


@dataclass(frozen=True)
class Cell:
    """The result, output and error of a cell."""

    result: Any
    out: str
    err: str
    error: BaseException | None


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder for session files, instead of the user's folder."""
    from hpu_magic import private_folder
    from hpu_magic.sessions.this_process import _here

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
    # reset() collects garbage; there is no need to traverse the modules' half a million objects
    # again.
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
    """Run a cell and return its result, output and exception."""

    def run_cell(source: str) -> Cell:
        capfd.readouterr()
        result = shell.run_cell(source, store_history=True)
        out, err = capfd.readouterr()
        error = result.error_before_exec or result.error_in_exec
        return Cell(result.result, out, err, error)

    return run_cell


@pytest.fixture
def succeeds(run: Callable[[str], Cell]) -> Callable[..., Cell]:
    """Run a cell that must not fail, unless `fails` is true."""

    def run_cell(source: str, *, fails: bool = False) -> Cell:
        cell = run(source)
        assert (cell.error is not None) == fails, cell.error
        return cell

    return run_cell


@pytest.fixture
def rejected(run: Callable[[str], Cell]) -> Callable[[str], str]:
    """Run a cell that a command rejects without a traceback, and return the message."""

    def run_cell(source: str) -> str:
        cell = run(source)
        assert type(cell.error).__name__ == "UsageError", cell.error
        assert "Traceback" not in cell.out + cell.err
        return str(cell.error)

    return run_cell


@pytest.fixture
def fits(succeeds: Callable[..., Cell]) -> Callable[..., Cell]:
    """Run a cell that must not fail in a shell with the variables of `small_fit`."""
    succeeds(SETUP)
    return succeeds


def _settings(simulated: bool, environment: dict[str, str]) -> dict[str, str]:
    settings = dict(os.environ)
    if simulated:
        settings["HPU_MAGIC_SIMULATOR"] = "1"
    if "HPU_MAGIC_CARD" in environment:  # all cards of a machine have the same generation
        settings["HPU_MAGIC_CARDS_DIR"] += f"-{environment['HPU_MAGIC_CARD']}"
    return settings | environment


@pytest.fixture(scope="session")
def script() -> Callable[..., str]:
    """Run Python code in a new process and return its output."""

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
    """Like `script`, but faster; not suitable for tests of process start, imports and exit.

    With `hides_torch`, torch is imported and loads the device when the code imports it.
    """

    def run_script(
        code: str, *, simulated: bool = False, hides_torch: bool = False, **environment: str
    ) -> str:
        settings = _settings(simulated, environment)
        return forked_python(textwrap.dedent(code), settings, hides_torch=hides_torch)

    return run_script


@pytest.fixture
def forked_dry_runs(forked_python: ForkedPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the ranks of dry runs as forks, because the import of torch takes seconds."""
    from hpu_magic.dry_runs.process import Processes

    monkeypatch.setattr(Processes, "create", forked_python.popen)


@pytest.fixture(scope="session")
def forked_kernels(forked_python: ForkedPython) -> Callable[..., AbstractContextManager[None]]:
    """A context in which kernels start as forks; not suitable for tests of a kernel's start.

    With `engines`, their ipyparallel engines are forks, too.
    """
    from jupyter_client.provisioning import local_provisioner

    @contextmanager
    def forked(*, engines: bool = False) -> Iterator[None]:
        launch = forked_python.kernel_with_engines if engines else forked_python.kernel
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local_provisioner, "launch_kernel", launch)
            yield

    return forked


# Python runs this at start. The path of the library is fixed in the binding.
_FIND_LIBRARY = """
from pyhlml.hlml_lib import LibHLML
LibHLML.__init__.__defaults__ = ({library!r},)
"""


@pytest.fixture(scope="session")
def hlml_cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which the real pyhlml binding loads a small test library."""
    pytest.importorskip("pyhlml.hlml_lib")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (cc or gcc) installed")
    folder = tmp_path_factory.mktemp("hlml")
    source, built = Path(__file__).with_name("hlml_library.c"), folder / "libhlml.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
    (folder / "sitecustomize.py").write_text(_FIND_LIBRARY.format(library=str(built)))
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def lazy(forked_kernels: Callable[[], AbstractContextManager[None]]) -> Iterator[NotebookKernel]:
    """A kernel in lazy mode, shared by the tests of a module."""
    first = "%load_ext hpu_magic\nimport torch\nfrom torch import nn\n"
    first += "import habana_frameworks.torch.core as htcore"
    with forked_kernels(), running_kernel(first, PT_HPU_LAZY_MODE="1") as kernel:
        yield kernel


@pytest.fixture(scope="module")
def lazy_process(forked_python: ForkedPython) -> Iterator[LazyProcess]:
    """A process in lazy mode without IPython, shared by the tests of a module."""
    process = LazyProcess(forked_python)
    yield process
    process.close()


@pytest.fixture
def own_card(torch: Any) -> str:
    """Label of the test process's card in headlines; its number depends on the free cards."""
    from hpu_magic import monitor

    torch.hpu.init()
    cards = monitor.snapshot().cards
    held = {holder.pid: card.module_id for card in cards for holder in card.holders}
    return f"HPU {held[os.getpid()]} (simulated GAUDI2)"


@pytest.fixture
def forgetful(shell: Any) -> Iterator[None]:
    """Delete the settings that a test stores for the next kernel of the notebook."""
    from hpu_magic.runtime.start import restart

    yield
    restart.remember(dict.fromkeys(restart.recall()))


@pytest.fixture
def torch(shell: Any) -> Any:
    """PyTorch with the hpu device."""
    import torch

    return torch


@pytest.fixture
def needs() -> Callable[[str], None]:
    """Skip a test if this release of PyTorch lacks the tested feature."""
    from hpu_magic.simulator import activate

    activate(announce=False)
    from habana_frameworks.torch import _limits

    def skip_without(feature: str) -> None:
        if getattr(_limits, feature) in _limits.missing():
            pytest.skip(_limits.sentence())

    return skip_without


@pytest.fixture
def compile_on_hpu(torch: Any) -> Iterator[Callable[..., Any]]:
    """`torch.compile` for the device, without compiled code from other tests."""
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
