"""Test the published state of fits, and stop requests."""

import json
import math
import os
import threading
import time
from dataclasses import replace

import pytest
from started_process import started

from hpu_magic import monitor, sessions
from hpu_magic.sessions import Fit, PublishedFit, SessionState

NOTEBOOK = "/notebooks/first.ipynb"
FIT = Fit(
    "DigitReader",
    began=1700000000.0,
    phase="training",
    epoch=3,
    epochs=10,
    batch=40,
    batches=57,
    step=154,
    share=0.27,
    remaining=40.2,
    rate=42.0,
    loss=0.231,
)


def seen():
    return sessions.session(os.getpid())


@pytest.fixture
def published(own_folder):
    """Publish fits, and withdraw them after the test."""
    fits = []

    def publish(fit=FIT, stop=None):
        fits.append(PublishedFit(stop))
        if fit is not None:
            fits[-1].update(fit)
        return fits[-1]

    yield publish
    for fit in fits:
        fit.withdraw()


@pytest.fixture
def announcement(own_folder):
    """The session of a notebook with a running cell, whose kernel handles requests."""
    session = sessions.Announcement(NOTEBOOK, running=True, stoppable=True)
    yield session
    session.withdraw()


def test_fit_is_published_with_its_notebook_and_withdrawn(announcement, published, own_folder):
    fit = published()
    assert seen() == SessionState(NOTEBOOK, 0.0, None, FIT)
    fit.update(replace(FIT, step=155, loss=None))
    assert seen().fit == replace(FIT, step=155, loss=None)
    fit.withdraw()
    fit.update(FIT)  # a late thread
    assert seen() == SessionState(NOTEBOOK, 0.0)
    assert [path.suffix for path in own_folder.iterdir()] == [""]


def test_script_without_a_session_publishes_its_fit(published, own_folder):
    fit = published(None)
    assert seen() is None
    fit.update(FIT)
    assert seen() == SessionState(None, 0.0, None, FIT)
    fit.withdraw()
    assert seen() is None
    assert list(own_folder.iterdir()) == []


def test_session_with_a_fit_in_a_thread_is_busy(announcement, published):
    announcement.end()
    announcement.idle_since -= 100
    fit = published()
    assert seen().idle == 0
    fit.withdraw()
    assert 100 <= seen().idle < 130


@pytest.mark.parametrize(
    ("loss", "written"),
    [(math.nan, "NaN"), (math.inf, "inf"), (-math.inf, "-inf"), (3e38, 3e38), (0.5, 0.5)],
)
def test_loss_that_is_not_finite_is_text_in_json(published, own_folder, loss, written):
    broken = replace(FIT, loss=loss, broken="loss NaN since step 31")
    published(broken)
    [path] = own_folder.iterdir()

    def refuse(constant):
        raise AssertionError(f"{constant} is not valid JSON")

    fit = json.loads(path.read_text(), parse_constant=refuse)["fit"]
    assert fit == {**vars(broken), "loss": written}
    assert repr(seen().fit) == repr(broken)  # NaN is not equal to itself

    holder = monitor.Holder(7, "first.ipynb", "ada", 0.0, broken)
    card = monitor.CardReading(0, 0, "GAUDI2", "GAUDI2", True, 0, 1, holders=(holder,))
    record = monitor.Snapshot((card,), "simulator").as_record()
    assert json.loads(json.dumps(record, allow_nan=False))["cards"][0]["holders"] == [
        {"pid": 7, "command": "first.ipynb", "user": "ada", "idle": 0.0, "fit": fit}
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": None},
        {"began": "yesterday"},
        {"phase": "resting"},
        {"epoch": -1},
        {"epochs": 1.5},
        {"batch": None},
        {"step": True},
        {"share": "half"},
        {"rate": 10**400},
        {"loss": "nan"},
        {"loss": [1]},
        {"broken": 7},
        {"stoppable": 1},
    ],
)
def test_damaged_fit_is_ignored_but_its_session_is_not(announcement, own_folder, wrong):
    [path] = own_folder.iterdir()
    state = json.loads(path.read_text())
    valid = {**FIT.as_record(), "of another release": 1}
    path.write_text(json.dumps({**state, "fit": valid}))
    assert seen() == SessionState(NOTEBOOK, 0.0, None, FIT)
    for fit in ({**valid, **wrong}, [valid], "fit", {}):
        path.write_text(json.dumps({**state, "fit": fit}))
        assert seen() == SessionState(NOTEBOOK, 0.0)
    path.write_text(json.dumps({**state, "fit": {**valid, "loss": math.nan}}))
    assert seen() is None


def test_fork_does_not_change_the_file_of_its_parent(announcement, published):
    fit = published()
    if not (child := os.fork()):
        fit.update(replace(FIT, model="Child"))
        announcement.begin()
        fit.withdraw()
        announcement.withdraw()
        nothing = seen() is None and sessions.own_fit() is None
        own = PublishedFit()
        own.update(replace(FIT, model="Own"))
        published = sessions.session(os.getpid()) == SessionState(
            None, 0.0, None, replace(FIT, model="Own")
        )
        own.withdraw()
        os._exit(0 if nothing and published and seen() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert seen() == SessionState(NOTEBOOK, 0.0, None, FIT)


def test_fork_during_an_update_of_another_thread_can_publish(published):
    fit, ended = published(), threading.Event()

    def update():
        while not ended.is_set():
            fit.update(FIT)

    thread = threading.Thread(target=update)
    thread.start()
    try:
        for _ in range(20):
            if not (child := os.fork()):
                PublishedFit().update(FIT)
                sessions.this_process._here.end()  # like at its exit
                os._exit(0)
            deadline = time.monotonic() + 100
            while not (done := os.waitpid(child, os.WNOHANG))[0]:
                assert time.monotonic() < deadline, "the child waits for a lock without an owner"
                time.sleep(0.01)
            assert done[1] == 0
    finally:
        ended.set()
        thread.join()


def test_several_threads_write_complete_files_and_the_newest_fit_counts(published):
    fits = [published(replace(FIT, model=name, step=0)) for name in ("First", "Second")]
    models, ended = set(), threading.Event()

    def update(fit):
        step = 0
        while not ended.is_set():
            step += 1
            fit.update(replace(fit.state, step=step))

    threads = [threading.Thread(target=update, args=(fit,)) for fit in fits]
    for thread in threads:
        thread.start()
    for _ in range(300):
        models.add(seen().fit.model)
    ended.set()
    for thread in threads:
        thread.join()
    assert models == {"Second"}
    fits[1].withdraw()
    assert seen().fit == fits[0].state


def test_files_of_killed_processes_and_late_threads_are_removed(own_folder, published):
    code = f"""
        import os, sys, threading
        from pathlib import Path
        from hpu_magic import private_folder, sessions
        private_folder._OPEN_TO_ALL = (Path({str(own_folder.parents[1])!r}),)
        fit, state = sessions.PublishedFit(), sessions.Fit("Net", began=1.0)
        def update():
            while True:
                fit.update(state)
        threading.Thread(target=update, daemon=True).start()
        while sessions.session(os.getpid()) is None:
            pass
        print(flush=True)
        input()
    """
    ends = (lambda process: process.communicate("\n"), lambda process: process.kill())
    for end, left in zip(ends, (set(), {""}), strict=True):
        with started(code) as process:
            assert sessions.session(process.pid) == SessionState(
                None, 0.0, None, Fit("Net", began=1.0)
            )
            end(process)
            process.communicate()
        assert sessions.session(process.pid) is None
        assert {path.suffix for path in own_folder.iterdir()} - {".new"} == left
    published()
    assert [int(path.name.partition("-")[0]) for path in own_folder.iterdir()] == [os.getpid()]


def test_stop_request_changes_the_phase_immediately(announcement, published):
    assert sessions.stop_fit() is None
    published(FIT)  # a fit that cannot be stopped
    assert (sessions.stop_fit(), seen().fit.stoppable) == (None, False)
    presses = []
    published(replace(FIT, model="Requested"), lambda: presses.append("pressed"))
    assert seen().fit == sessions.own_fit() == replace(FIT, model="Requested", stoppable=True)
    assert sessions.stop_fit().model == "Requested"
    assert presses == ["pressed"]
    assert seen().fit == replace(FIT, model="Requested", stoppable=True, phase="stopping")


def test_fit_is_stoppable_only_if_its_session_handles_requests(published, monkeypatch):
    published(FIT, lambda: None)
    assert seen().fit.stoppable is False
    session = sessions.Announcement(NOTEBOOK, running=True)
    assert seen().fit.stoppable is False
    session.withdraw()
    session = sessions.Announcement(NOTEBOOK, running=True, stoppable=True)
    assert seen().fit.stoppable is True
    # A worker handles requests, but pages send them to the kernel of its notebook.
    monkeypatch.setattr(sessions.this_process._here, "name", "rank 1 of first.ipynb")
    assert sessions.own_fit().stoppable is False
    session.withdraw()


UNKNOWN = Fit("Net", began=0.0, phase="training", epoch=3)


@pytest.mark.parametrize(
    ("fit", "brief", "described"),
    [
        (
            FIT,
            "27 %, 40 s left",
            "DigitReader: epoch 3 of 10, 42.0 steps/s, loss 0.231, about 40 s left",
        ),
        (Fit("Net", began=0.0), "starting", "Net: starting"),
        (UNKNOWN, "epoch 3", "Net: epoch 3"),
        (replace(UNKNOWN, share=0.999), "99 %", "Net: epoch 3"),
        (replace(UNKNOWN, batch=120), "epoch 3, batch 120", "Net: epoch 3, batch 120"),
        (
            replace(UNKNOWN, phase="validating", share=0.5, remaining=0.1),
            "50 %, 1 s left",
            "Net: validating, epoch 3, about 1 s left",
        ),
        (
            replace(UNKNOWN, remaining=59.7, loss_name="train/ce", loss=1e-7),
            "epoch 3",
            "Net: epoch 3, train/ce 1e-07, about 1 min 0 s left",
        ),
        (replace(UNKNOWN, phase="stopping"), "stopping", "Net: stopping, epoch 3"),
        (replace(UNKNOWN, loss=math.nan), "epoch 3", "Net: epoch 3, loss NaN"),
        (
            replace(UNKNOWN, loss=math.inf, broken="loss inf since step 31"),
            "epoch 3",
            "Net: epoch 3, loss inf since step 31",
        ),
    ],
)
def test_fit_is_described_as_text(fit, brief, described):
    assert (fit.brief(), fit.described()) == (brief, described)
    holder = monitor.Holder(7, "first.ipynb", "ada", 0.0, fit)
    assert holder.described() == f"first.ipynb, fit: {brief}"
