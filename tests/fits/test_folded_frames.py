"""Tracebacks of failed fits: frames of Lightning and hpu_magic are folded."""

import gc
import re
import sys
import traceback
from pathlib import Path
from runpy import run_path
from types import ModuleType

import pytest

CLASSES = """
class Broken(Model):
    def training_step(self, batch, index):
        return self.measured(batch)
    def measured(self, batch):
        raise ValueError("the data is broken")
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, row):
        raise LookupError(f"there is no row {row}")
class Mistaken(Model):
    def training_step(self, batch, index):
        self.log("loss", "high")
class FailingCallback(pl.Callback):
    def on_exception(self, trainer, model, error):
        raise OSError("the notification failed")
broken, rows = Broken(), torch.utils.data.DataLoader(Rows(), 16)
"""
NOTE = "Frames of the framework and hpu_magic are omitted; %tb Plain shows all frames.\n"
FOLDED = "[...]"
LINE = "%hpu_fit trainer {} {}"
FORMS = {
    "line": "%hpu_fit trainer broken data",
    "cell": "%%hpu_fit\ntrainer.fit(broken, data)",
    "call": "import hpu_magic\nhpu_magic.fit(trainer, broken, data)",
}


@pytest.fixture
def failing(fits, run, shell):
    """Run a cell in one of IPython's traceback modes."""
    fits(CLASSES)

    def run_cell(source, mode="Context"):
        shell.InteractiveTB.set_mode(mode)
        return run(source)

    yield run_cell
    shell.InteractiveTB.set_mode("Context")


def shown(printed):
    """Return the function of each frame of a traceback, or the file of module-level code."""
    frames = re.findall(
        r"(\[\.\.\. skipping hidden \d+ frame\])|^(?:File (\S+?):\d+|Cell In\[\d+\], line \d+)"
        r"(?:, in ([\w.<>]+))?",
        printed,
        re.MULTILINE,
    )
    return [
        FOLDED if folded else function or Path(path).name or "cell"
        for folded, path, function in frames
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["Context", "Verbose"])
def test_traceback_shows_only_the_users_frames(failing, form, mode):
    cell = failing(FORMS[form], mode)
    assert isinstance(cell.error, ValueError)
    assert shown(cell.out) == ["cell", FOLDED, "Broken.training_step", "Broken.measured"]
    assert cell.out.rstrip().endswith("ValueError: the data is broken")
    assert cell.err.endswith(NOTE)
    assert cell.err.count("are omitted") == 1
    again = failing("%tb Plain").out
    assert "trainer.py" in again
    assert "session.py" in again


@pytest.mark.parametrize("form", FORMS)
def test_plain_traceback_shows_all_frames(failing, form):
    cell = failing(FORMS[form], "Plain")
    frames = re.findall(r"^  (?:File (\S+):\d+|Cell In\[\d+\], line \d+)", cell.out, re.MULTILINE)
    assert len(frames) == len(traceback.extract_tb(cell.error.__traceback__)) - 1  # IPython's frame
    assert "are omitted" not in cell.err


def test_traceback_module_formats_all_frames(failing, succeeds, shell):
    succeeds(
        """
        import traceback, hpu_magic
        try:
            hpu_magic.fit(trainer, broken, data)
        except ValueError:
            formatted = traceback.format_exc()
        """
    )
    files = re.findall(r'^  File "(.+)", line \d+, in', shell.user_ns["formatted"], re.MULTILINE)
    names = [Path(file).name for file in files]
    assert {"fit.py", "session.py", "trainer.py", "fit_loop.py", "automatic.py"} < set(names)
    assert "hidden" not in shell.user_ns["formatted"]


def test_minimal_traceback_shows_only_the_message(failing):
    cell = failing(FORMS["line"], "Minimal")
    assert cell.out.rstrip().endswith("\nValueError: the data is broken")
    assert shown(cell.out) == []
    assert "are omitted" not in cell.err


def test_frames_between_lightning_and_user_code_are_shown(failing):
    cell = failing("%hpu_fit trainer model rows")
    functions = shown(cell.out)
    assert functions[:2] == ["cell", FOLDED]
    assert functions.count(FOLDED) == 1
    assert functions[2].endswith("DataLoaderIter.__next__")
    assert functions[-1] == "Rows.__getitem__"
    assert "LookupError: there is no row 0" in cell.out


def test_error_raised_by_lightning_shows_the_users_call(failing, own_card):
    out = failing("%%hpu_fit\ntrainer.fit(pl.LightningModule(), data)").out
    assert shown(out) == ["cell", FOLDED, "__verify_train_val_loop_configuration"]
    assert re.search(r"^MisconfigurationException: No `training_step\(\)` method", out, re.M)
    assert f"Fit failed on {own_card} before the first batch" in out
    out = failing("mistaken = Mistaken()\n%hpu_fit trainer mistaken data").out
    functions = shown(out)
    assert functions[:4] == ["cell", FOLDED, "Mistaken.training_step", FOLDED]
    assert len(functions) == 5


def test_error_in_an_exception_callback_is_folded_too(failing):
    failing("trainer = make_trainer(callbacks=[FailingCallback()])")
    out = failing(FORMS["line"]).out
    first, second = out.split("During handling of the above exception, another exception occurred")
    assert shown(first) == [FOLDED, "Broken.training_step", "Broken.measured"]
    assert shown(second) == ["cell", FOLDED, "FailingCallback.on_exception"]


@pytest.mark.parametrize("chained", ["__cause__", "__context__"])
def test_frames_of_chained_exceptions_are_folded(failing, shell, chained):
    failing(FORMS["line"])
    first = shell.user_ns["first"] = sys.last_value
    out = failing(
        """
        class Second(Model):
            def training_step(self, batch, index):
                try:
                    make_trainer().fit(broken, data)
                except ValueError as first:
                    raise RuntimeError("again") {}
        second = Second()
        %hpu_fit trainer second data
        """.format("from first" if chained == "__cause__" else "")
    ).out
    assert first is not sys.last_value
    inner, outer = re.split(r"The above exception was|During handling of", out)
    assert shown(inner) == [
        "Second.training_step",
        FOLDED,
        "Broken.training_step",
        "Broken.measured",
    ]
    assert shown(outer) == ["cell", FOLDED, "Second.training_step"]


def test_user_files_named_like_library_files_are_shown(failing, shell, tmp_path):
    names = ["lightning.py", "hpu_magic.py", "torch.py", "lightning/pytorch/trainer/trainer.py"]
    calls = []
    for function, name in zip("abcd", names, strict=True):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def {function}(first, *others):\n    return first(*others)\n")
        calls.append(run_path(str(path))[function])
    shell.user_ns["calls"] = calls
    out = failing(
        """
        class Mine(Model):
            def training_step(self, batch, index):
                first, *others = calls
                return first(*others, broken.measured, batch)
        mine = Mine()
        %hpu_fit trainer mine data
        """
    ).out
    assert shown(out) == ["cell", FOLDED, "Mine.training_step", *"abcd", "Broken.measured"]


def test_error_outside_a_fit_shows_all_frames(failing):
    cell = failing("%%hpu_fit\ntrainer.fit(model, data)\ntrainer.validate(broken)")
    assert FOLDED not in shown(cell.out)
    assert len(shown(cell.out)) > 5
    assert "are omitted" not in cell.err
    cell = failing("%hpu_fit model trainer")
    assert "are omitted" not in cell.err


def test_interrupt_shows_no_note_about_folded_frames(failing):
    cell = failing(
        """
        class Interrupted(Model):
            def training_step(self, batch, index):
                raise KeyboardInterrupt
        interrupted = Interrupted()
        %hpu_fit trainer interrupted data
        """
    )
    assert isinstance(cell.error, KeyboardInterrupt)
    assert shown(cell.out) == ["cell", FOLDED, "observed_fit"]
    assert "are omitted" not in cell.err


def test_cleared_frames_free_their_tensors(failing, succeeds, shell):
    succeeds(
        """
        def kept(batch, index):
            import weakref
            Leaking.seen = weakref.ref(batch[0])
            raise ValueError("the data is broken")
        class Leaking(Model):
            def training_step(self, batch, index):
                kept(batch, index)
        leaking = Leaking()
        try:
            %hpu_fit trainer leaking data
        except ValueError as broken:
            error = broken
        """
    )
    batch = shell.user_ns["Leaking"].seen
    assert batch() is not None
    traceback.clear_frames(shell.user_ns["error"].__traceback__)
    gc.collect()
    assert batch() is None


def test_folding_adds_no_variables_to_modules_or_namespace(failing, shell):
    failing(FORMS["cell"])
    assert "__tracebackhide__" not in shell.user_ns
    assert not [
        name
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and "__tracebackhide__" in vars(module)
    ]
