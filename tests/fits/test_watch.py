"""Test plain loops with a panel: results, outcomes, nested loops and validations."""

import inspect
import math
import re

import pytest

from hpu_magic import units
from hpu_magic.panels.palette import WIDTH
from hpu_magic.runtime.training.logged_values import FIRST_STEPS

FAILS = ("loader", "body")
SETUP = """
import torch, time, hpu_magic
model = torch.nn.Linear(8, 1)
rows = torch.randn(64, 8)
loader = torch.utils.data.DataLoader(rows, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step(batch):
    loss = model(batch.to(model.weight.device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


@pytest.fixture
def loops(succeeds):
    """Run a cell in a shell with a `loader` of 8 batches, `model` and `step`; it must not fail."""
    succeeds(SETUP)
    return succeeds


@pytest.fixture
def press(shell, monkeypatch):
    """Press Stop in the running loop's panel."""
    from hpu_magic.fits.session import FitSession

    running = []
    opened = FitSession.open
    monkeypatch.setattr(
        FitSession, "open", lambda session: (running.append(session), opened(session))[1]
    )
    shell.user_ns["press"] = lambda: running[-1]._press_stop()
    return shell.user_ns["press"]


def test_loop_reports_its_batches_metrics_and_result(loops):
    cell = loops(
        """
        seen = []
        for batch in (watched := hpu_magic.watch(loader, epochs=3, device='cpu')):
            seen.append((watched.epoch, batch.sum().item()))
            hpu_magic.watch.log(loss=step(batch), speed=7)
        """
    )
    seen, length, result = loops("seen, len(watched), watched.result").result
    expected = [batch.sum().item() for batch in loops("rows.split(8)").result]
    assert seen == [(epoch, value) for epoch in range(3) for value in expected]
    assert (length, result.outcome, result.steps) == (24, "finished", 24)
    assert (result.where, result.trained) == ("epoch 3 of 3, batch 8 of 8", "3 epochs")
    assert result.metrics["loss"] > 0
    assert result.metrics["speed"] == 7
    assert (result.device, result.peak) == ("cpu", None)
    assert cell.out.count("Loop finished on cpu: 3 epochs") == 1


def test_loop_on_the_device_reports_peak_memory(loops, own_card):
    loops(
        """
        model.to("hpu")
        for batch in (watched := hpu_magic.watch(loader, loss=lambda: loss, name="Reader")):
            loss = step(batch)
        model.to("cpu")
        """
    )
    result = loops("watched.result").result
    assert result.device == own_card
    assert result.peak > 0
    assert result.metrics["loss"] == pytest.approx(loops("loss.item()").result, rel=1e-5)


def test_tensor_metrics_are_read_once_per_interval(loops):
    loops(
        """
        class Counted:
            reads = 0
            def numel(self): return 1
            def detach(self): return self
            def clone(self): return self
            def __float__(self): Counted.reads += 1; return 0.5
        one = Counted()
        began = time.monotonic()
        for number in (watched := hpu_magic.watch(range(3000), interval=0.5)):
            watched.log(loss=one)
            time.sleep(0.0003)
        seconds = time.monotonic() - began
        """
    )
    reads, seconds = loops("Counted.reads, seconds").result
    assert FIRST_STEPS <= reads <= FIRST_STEPS + 2 * math.ceil(seconds / 0.5) + 2
    assert loops("watched.result.metrics").result == {"loss": 0.5}


@pytest.mark.parametrize("device", ["cpu", "hpu"])
def test_metrics_keep_the_value_at_the_time_of_logging(loops, device):
    loops(
        f"""
        model.to("{device}")
        running, counted = torch.zeros(2, device="{device}"), torch.zeros(2).numpy()
        for number in (watched := hpu_magic.watch(range(3), loss=lambda: running[:1])):
            running.fill_(number + 1)
            counted[:] = number + 1
            watched.log(speed=running[0], again=running.sum(), numpy=counted[:1])
            counted[:] = 0
            running.fill_(10 * (number + 1))
        running.zero_()
        """
    )
    assert loops("watched.result.metrics").result == {
        "loss": 30.0,
        "speed": 3.0,
        "again": 6.0,
        "numpy": 3.0,
    }


def test_stop_ends_a_loop_after_the_current_batch(loops, press):
    loops(
        """
        for batch in (watched := hpu_magic.watch(loader, epochs=1000)):
            watched.log(loss=step(batch))
            if watched.epoch == 1:
                press()
        after = "reached"
        """
    )
    result, stopped, after = loops("watched.result, watched.stopped, after").result
    assert (result.outcome, result.stopped_early, stopped) == ("stopped", True, True)
    assert (result.steps, result.where) == (9, "epoch 2 of 1000, batch 1 of 8")
    assert after == "reached"


@pytest.mark.parametrize(("ends", "error"), [("break", None), ("1 / 0", ZeroDivisionError)])
def test_loop_left_early_keeps_its_result(loops, ends, error):
    cell = loops(
        f"""
        for number, batch in enumerate(watched := hpu_magic.watch(loader, device='cpu')):
            watched.log(loss=step(batch))
            if number == 2:
                {ends}
        """,
        fails=error is not None,
    )
    assert (type(cell.error) if cell.error else None) is error
    result = loops("watched.result").result
    assert (result.outcome, result.steps) == ("left", 2)
    assert result.where == "epoch 1 of 1, batch 3 of 8"
    assert result.metrics["loss"] > 0
    assert "Loop left on cpu in epoch 1 of 1, batch 3 of 8" in cell.out


@pytest.mark.parametrize(
    ("raised", "outcome", "error"),
    [
        ("ValueError('broken')", "failed", "ValueError: broken"),
        ("KeyboardInterrupt", "interrupted", None),
    ],
)
@pytest.mark.parametrize("place", FAILS)
def test_failure_of_loader_or_body_is_reported(loops, place, raised, outcome, error):
    from_loader, from_body = (f"raise {raised}" if place == fail else "pass" for fail in FAILS)
    cell = loops(
        f"""
        def batches():
            yield 1
            yield 2
            {from_loader}
            yield 3
        with hpu_magic.watch(batches(), total=3) as watched:
            for number in watched:
                if number == 3:
                    {from_body}
        """,
        fails=True,
    )
    assert type(cell.error).__name__ == raised.partition("(")[0]
    result = loops("watched.result").result
    assert (result.outcome, result.error, result.steps) == (outcome, error, 2)


def test_each_pass_in_a_with_block_is_an_epoch(loops):
    cell = loops(
        """
        with hpu_magic.watch(loader, epochs=2) as watched:
            for epoch in range(2):
                assert watched.result is None
                for batch in watched:
                    watched.log(loss=step(batch))
                time.sleep(0.3)
                for batch in (judged := hpu_magic.watch(loader)):
                    judged.log(loss=0.25)
                watched.log(val_accuracy=torch.tensor(0.5 + epoch / 4))
        """
    )
    result = loops("watched.result").result
    assert (result.outcome, result.steps, result.trained) == ("finished", 16, "2 epochs")
    assert result.metrics["val_loss"] == 0.25
    assert result.metrics["val_accuracy"] == 0.75
    assert cell.out.count("Loop finished") == 1
    assert loops("judged.result").result is None
    # Time between the epochs does not count as training.
    assert 0 < result.steps / result.steps_per_second < result.seconds - 0.6


NESTED = {
    "loops": """
        for epoch in range(3):
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                hpu_magic.watch.log(loss=step(batch))
    """,
    "a function for each epoch": """
        def train_epoch():
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                hpu_magic.watch.log(loss=step(batch))
            return watched
        for epoch in range(3):
            watched = train_epoch()
    """,
    "one watch": """
        watched, epoch = hpu_magic.watch(loader, device="cpu"), 0
        while epoch < 3:
            for batch in watched:
                watched.log(loss=step(batch))
            epoch += 1
    """,
    "a new loader for each epoch, at two places": """
        for epoch in range(3):
            if epoch == 1:
                for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                    watched.log(loss=step(batch))
            else:
                for batch in enumerate(watched := hpu_magic.watch(loader, device="cpu")):
                    watched.log(loss=step(batch[1]))
    """,
}


@pytest.mark.parametrize("form", NESTED)
def test_loop_inside_an_epoch_loop_has_one_panel(loops, form):
    cell = loops(NESTED[form])
    assert cell.out.count("Loop finished on cpu: 3 epochs") == cell.out.count("Loop ") == 1
    result = loops("watched.result").result
    assert (result.outcome, result.steps, result.trained) == ("finished", 24, "3 epochs")
    assert result.where == "epoch 3, batch 8 of 8"
    assert result.metrics["loss"] > 0


def test_loop_between_two_epochs_is_a_validation(loops):
    cell = loops(
        """
        for epoch in range(2):
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                watched.log(loss=step(batch))
            for batch in hpu_magic.watch(loader.dataset.split(4)):
                hpu_magic.watch.log(loss=0.5 - epoch / 4)
            hpu_magic.watch.log(val_accuracy=0.5 + epoch / 4)
        """
    )
    assert cell.out.count("Loop ") == 1
    result = loops("watched.result").result
    assert (result.steps, result.trained) == (16, "2 epochs")
    assert result.metrics["val_loss"] == 0.25
    assert result.metrics["val_accuracy"] == 0.75
    # Values of an epoch are labeled with the epoch.
    assert "loss, best 0.25 in epoch 2" in result.picture
    assert "val_accuracy, best 0.75 in epoch 2" in result.picture


TRAIN, VALIDATE = (
    "hpu_magic.watch.log(loss=step(batch))",
    "hpu_magic.watch.log(loss=0.25)",
)
VALIDATED = {
    "a new loader for each pass": f"""
        for epoch in range(12):
            for place, batch in enumerate(hpu_magic.watch(list(loader), device="cpu")):
                {TRAIN}
            for place, batch in enumerate(hpu_magic.watch(list(loader), device="cpu")):
                {VALIDATE}
    """,
    "one function": """
        def run_epoch(loader):
            for batch in hpu_magic.watch(loader, device="cpu"):
                hpu_magic.watch.log(loss=0.25)
        for epoch in range(12):
            run_epoch(list(loader))
            run_epoch(list(loader))
    """,
    "one line for both phases": """
        loaders = {"train": loader, "val": validation}
        for epoch in range(12):
            for phase in loaders:
                for batch in hpu_magic.watch(loaders[phase], device="cpu"):
                    hpu_magic.watch.log(loss=0.25)
    """,
    "the same dataset": f"""
        for epoch in range(12):
            for batch in hpu_magic.watch(loader, device="cpu"):
                {TRAIN}
            for batch in hpu_magic.watch(torch.utils.data.DataLoader(rows, 4)):
                {VALIDATE}
    """,
    "the same loader without gradients": f"""
        for epoch in range(12):
            for batch in hpu_magic.watch(loader, device="cpu"):
                {TRAIN}
            with torch.no_grad():
                for batch in hpu_magic.watch(loader):
                    {VALIDATE}
    """,
    "tqdm": f"""
        for epoch in range(12):
            for batch in tqdm.tqdm(hpu_magic.watch(loader, device="cpu"), disable=epoch > 1):
                {TRAIN}
            for batch in tqdm.tqdm(hpu_magic.watch(validation), disable=epoch > 1):
                {VALIDATE}
    """,
    "a generator": f"""
        def moved(loader):
            for batch in hpu_magic.watch(loader, device="cpu"):
                yield batch
        for epoch in range(12):
            for batch in moved(loader):
                {TRAIN}
            for batch in moved(validation):
                {VALIDATE}
    """,
    "itertools": f"""
        for epoch in range(12):
            for batch in itertools.chain(hpu_magic.watch(loader, device="cpu")):
                {TRAIN}
            for batch, one in zip(hpu_magic.watch(validation), itertools.count()):
                {VALIDATE}
    """,
    "an iterator that is kept": f"""
        for epoch in range(12):
            batches = iter(hpu_magic.watch(loader, device="cpu"))
            for batch in batches:
                {TRAIN}
            for batch in (batches := iter(hpu_magic.watch(validation))):
                {VALIDATE}
    """,
    "a long loop": f"""
        for epoch in range(12):
            for batch in tqdm.tqdm(hpu_magic.watch(loader, device="cpu"), disable=True):
                {TRAIN}
                {"; ".join(["batch = [batch, batch]"] * 200)}
            for batch in tqdm.tqdm(hpu_magic.watch(validation), disable=True):
                {VALIDATE}
    """,
}


@pytest.mark.parametrize("form", VALIDATED)
def test_second_loader_between_epochs_is_a_validation(loops, form):
    loops("import itertools, tqdm; validation = torch.utils.data.DataLoader(torch.ones(12, 8), 4)")
    cell = loops(f"%%hpu_fit -o result\n{inspect.cleandoc(VALIDATED[form])}")
    assert cell.out.count("Loop finished on cpu: 12 epochs") == cell.out.count("Loop ") == 1
    result = loops("result").result
    assert result.steps == 96
    assert result.metrics["val_loss"] == 0.25


def test_validation_without_gradients_may_precede_training(loops):
    cell = loops(
        """
        for epoch in range(3):
            with torch.no_grad():
                for batch in (judged := hpu_magic.watch(rows.split(16), device="cpu")):
                    hpu_magic.watch.log(loss=0.25)
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                hpu_magic.watch.log(loss=step(batch))
        """
    )
    finished = re.findall(r"Loop finished on cpu: (\d epochs?)", cell.out)
    assert finished == ["1 epoch", "3 epochs"]  # the first validation precedes all training
    result = loops("watched.result").result
    assert (result.steps, result.metrics["val_loss"]) == (24, 0.25)


def test_nested_validation_loops_count_as_validation(loops):
    loops(
        """
        for batch in (watched := hpu_magic.watch(loader, device="cpu")):
            hpu_magic.watch.log(loss=step(batch))
            for outer in hpu_magic.watch([1, 2]):
                for inner in hpu_magic.watch([3]):
                    hpu_magic.watch.log(accuracy=0.5)
                hpu_magic.watch.log(loss=0.25)
        """
    )
    metrics = loops("watched.result.metrics").result
    assert (metrics["val_loss"], metrics["val_accuracy"]) == (0.25, 0.5)
    assert metrics["loss"] != 0.25


@pytest.mark.parametrize("inner", [True, False])
def test_stop_during_a_validation_ends_the_loop(loops, press, inner):
    deeper = "    " if inner else ""
    cell = loops(
        f"""
        seen = []
        for epoch in range(40):
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                seen.append("training")
            {deeper}for batch in hpu_magic.watch(rows.split(4)):
                {deeper}seen.append("validation")
                {deeper}if len(seen) == 12:
                    {deeper}press()
        """
    )
    assert "Loop stopped on cpu" in cell.out
    result, seen = loops("watched.result, seen").result
    assert (result.outcome, len(seen)) == ("stopped", 12)
    assert result.steps == (1 if inner else 8)
    assert result.where == ("epoch 1, batch 1 of 8" if inner else "epoch 1, validation batch 4")


def test_with_block_that_ends_early_reports_planned_epochs(loops):
    cell = loops(
        """
        with hpu_magic.watch(loader, epochs=9, device="cpu") as watched:
            for epoch in range(3):
                for batch in watched:
                    step(batch)
        """
    )
    assert "Loop finished on cpu: 3 of 9 epochs in" in cell.out


def test_last_validation_belongs_to_the_loop(loops):
    loops(
        """
        began = time.monotonic()
        for epoch in range(2):
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                step(batch)
            for batch in hpu_magic.watch(range(2)):
                hpu_magic.watch.log(loss=0.25)
                time.sleep(0.3)
            hpu_magic.watch.log(accuracy=0.5, val_accuracy=0.25)
        took = time.monotonic() - began
        time.sleep(1)
        """
    )
    result, took = loops("watched.result, took").result
    assert 1.2 < result.seconds < took
    assert result.where == "epoch 2, batch 8 of 8"
    places = [float(x) for x in re.findall(r'cx="([0-9.]+)"', result.picture)]
    assert max(places) <= WIDTH


def test_several_fits_in_a_cell_have_separate_panels(loops):
    cell = loops(
        """
        def train(epochs=2):
            for epoch in range(epochs):
                for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                    step(batch)
            return watched
        one, two = [train() for _ in range(2)]
        for rate in (0.1, 0.2):
            for epoch in range(3):
                for batch in (last := hpu_magic.watch(loader, name=f"rate {rate}", device="cpu")):
                    step(batch)
        for fold in range(2):
            for batch in hpu_magic.watch(loader, epochs=4, device="cpu"):
                step(batch)
        """
    )
    trained = re.findall(r"Loop finished on cpu: (\d) epochs", cell.out)
    assert trained == ["2", "2", "3", "3", "4", "4"]
    assert loops("one.result is two.result, last.result.steps").result == (False, 24)


@pytest.mark.parametrize(
    ("ends", "outcome", "steps"),
    [
        ("if epoch == 1: break", "left", 15),
        ("if epoch == 1: press()", "stopped", 9),
        ("if epoch == 1: 1 / 0", "failed", 8),
        ("if epoch == 1: raise KeyboardInterrupt", "interrupted", 8),
    ],
)
def test_outcome_of_an_inner_loop_is_the_outcome_of_the_fit(loops, press, ends, outcome, steps):
    loops(
        f"""
        for epoch in range(2):
            for number, batch in enumerate(watched := hpu_magic.watch(loader, device="cpu")):
                step(batch)
                if number == 7 or {outcome != "left"}:
                    {ends}
        """,
        fails=outcome in ("failed", "interrupted"),
    )
    result = loops("watched.result").result
    assert (result.outcome, result.steps) == (outcome, steps)


@pytest.mark.parametrize("ends", ["break", "raise ValueError"])
def test_code_after_the_loops_does_not_change_their_result(loops, ends, own_card):
    cell = loops(
        f"""
        import contextlib
        model.to("hpu")
        began = time.monotonic()
        with contextlib.suppress(ValueError):
            for epoch in range(2):
                for number, batch in enumerate(watched := hpu_magic.watch(loader)):
                    hpu_magic.watch.log(loss=9.0 - epoch * number)
                    step(batch)
                    if (epoch, number) == (1, 4):
                        {ends}
        took = time.monotonic() - began
        time.sleep(2)
        large = torch.ones(1 << 20, device="hpu")
        """
    )
    result, took = loops("model.to('cpu'); del large; watched.result, took").result
    assert (result.outcome, result.steps) == ("left", 12)
    assert result.seconds < took
    assert result.steps / result.steps_per_second < took
    assert result.peak < 1 << 20
    assert "at step 13" in cell.out + result.picture  # the unfinished batch counts as a step
    times = re.findall(r">([0-9.]+) s</text>", result.picture)
    assert max(map(float, times)) < took
    assert f"device memory: {units.capacity(result.peak)} peak" in result.picture


def test_error_after_the_loops_does_not_change_their_outcome(loops):
    cell = loops(
        """
        for epoch in range(2):
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                step(batch)
        1 / 0
        """,
        fails=True,
    )
    assert type(cell.error) is ZeroDivisionError
    assert "Loop finished on cpu: 2 epochs" in cell.out


def test_unfinished_loop_does_not_block_the_next_loop(loops):
    loops("left = hpu_magic.watch(loader)\nbatches = iter(left)\nnext(batches)")
    cell = loops("for batch in (watched := hpu_magic.watch(loader)):\n    step(batch)")
    assert "Loop finished" in cell.out
    assert loops("left.result.outcome, watched.result.outcome").result == ("left", "finished")


def test_loop_in_a_thread_may_outlive_its_cell(loops):
    loops(
        """
        import threading
        goes_on = threading.Event()
        def train():
            global watched
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                goes_on.wait(60)
                hpu_magic.watch.log(loss=step(batch))
        thread = threading.Thread(target=train)
        thread.start()
        """
    )
    loops("goes_on.set(); thread.join()")
    result = loops("watched.result").result
    assert (result.outcome, result.steps) == ("finished", 8)


def test_nan_loss_of_a_loop_is_reported(loops):
    loops(
        """
        for number in (watched := hpu_magic.watch(range(12), interval=0.02)):
            watched.log(loss=float("nan") if number >= 8 else 1.0)
            time.sleep(0.05)
        """
    )
    [noted] = loops("watched.result.not_finite").result
    assert (noted.curve, noted.value, noted.step, noted.lasting) == ("loss", "NaN", 9, True)


def test_failing_loss_function_warns_and_training_continues(loops):
    with pytest.warns(UserWarning, match="continues without the loss.*name 'lost' is not defined"):
        loops("for b in (w := hpu_magic.watch(loader, loss=lambda: lost)):\n    step(b)")
    assert loops("w.result.outcome, w.result.steps").result == ("finished", 8)


def test_empty_loader_warns(loops):
    with pytest.warns(UserWarning, match="watch received no batches: the loader is empty"):
        loops("for batch in (watched := hpu_magic.watch([])):\n    pass")
    result = loops("watched.result").result
    assert (result.outcome, result.steps, result.trained) == ("finished", 0, "")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("watch(model)", "loader must be an iterable such as a DataLoader, got a Linear"),
        ("watch(loader, epochs=0)", "epochs must be an integer of at least 1, got 0"),
        ("watch(loader, epochs=True)", "epochs must be an integer of at least 1, got True"),
        ("watch(loader, total=-1)", "total must be the number of batches, got -1"),
        ("watch(loader, total='8')", "total must be the number of batches, got '8'"),
        ("watch(iter([1]), epochs=2)", "can be iterated over only once, not 2 times"),
        ("watch(loader, loss=torch.ones(1))", "loss must be a function that returns the loss"),
        ("watch(loader, interval=0)", "must be between 0.02 and 60 seconds, got 0"),
        ("watch(loader, panel='tv')", "panel must be one of auto, widget, picture, got 'tv'"),
        ("watch.log(loss=1)", "No watch loop is running"),
        ("watch(loader).log(loss=1)", "The loop is not running"),
    ],
)
def test_invalid_argument_raises_an_error(loops, call, sentence):
    cell = loops(f"hpu_magic.{call}", fails=True)
    assert type(cell.error).__name__ == "HPUError"
    assert sentence in str(cell.error)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("rows", "a Tensor of shape (64, 8)"),
        ("torch.ones(1, dtype=torch.complex64)", "a Tensor of shape (1,)"),
        ("numpy.str_('low')", "a str_"),
        ("numpy.complex64(1)", "a complex64"),
        ("numpy.array(['low'])", "a ndarray of shape (1,)"),
        ("10**400", "a int outside the range of a float"),
        ("None", "a NoneType"),
    ],
)
def test_log_rejects_values_other_than_numbers(loops, value, kind):
    loops("import numpy")
    cell = loops(
        f"with hpu_magic.watch(loader) as watched:\n    watched.log(loss={value})", fails=True
    )
    assert str(cell.error) == f"loss is {kind}: log a number or a tensor with one element."
    assert loops("watched.result.outcome").result == "failed"


@pytest.mark.parametrize(
    "value",
    ["numpy.mean([1, 3])", "numpy.float32(2)", "numpy.array([2])", "numpy.int64(2)", "2"],
)
def test_log_accepts_numpy_numbers(loops, value):
    loops("import numpy")
    loops(
        f"for batch in (watched := hpu_magic.watch(loader)): watched.log(loss={value}, top={value})"
    )
    assert loops("watched.result.metrics").result == {"loss": 2.0, "top": 2.0}


def test_fit_cell_returns_the_result_of_nested_loops(loops):
    loops(f"%%hpu_fit -o kept{NESTED['loops'].replace(chr(10) + ' ' * 8, chr(10))}")
    assert loops("kept is watched.result, kept.steps").result == (True, 24)


def test_fit_cell_without_a_fit_suggests_watch(loops):
    cell = loops("%%hpu_fit\nfor batch in loader: step(batch)")
    assert "for batch in hpu_magic.watch(loader)" in cell.out


def test_script_with_loops_imports_no_framework_and_prints_one_table(script):
    printed = script(
        """
        import sys, hpu_magic
        for epoch in range(3):
            for number in hpu_magic.watch(range(5)):
                hpu_magic.watch.log(loss=number)
        print([name for name in ('lightning', 'transformers', 'torch') if name in sys.modules])
        """
    )
    assert printed.startswith("[]\nLoop finished on cpu: 3 epochs")
    assert printed.count("Loop ") == 1
