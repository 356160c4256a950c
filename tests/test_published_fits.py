"""What a fit tells other processes through its session's file, and how it is asked to end."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from dataclasses import replace

import pytest
from started_process import started

from hpu_magic import monitor, sessions
from hpu_magic.monitor.record import as_record
from hpu_magic.sessions import Fit, PublishedFit, Session

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
    made = []

    def publish(fit=FIT, stop=None):
        made.append(PublishedFit(stop))
        if fit is not None:
            made[-1].tell(fit)
        return made[-1]

    yield publish
    for one in made:
        one.withdraw()


@pytest.fixture
def announcement(own_folder):
    """The session of a notebook whose kernel answers, as long as a cell runs."""
    told = sessions.Announcement(NOTEBOOK, running=True, stoppable=True)
    yield told
    told.withdraw()


def test_a_fit_is_told_with_its_notebook_and_taken_away(announcement, published, own_folder):
    fit = published()
    assert seen() == Session(NOTEBOOK, 0.0, None, FIT)
    fit.tell(replace(FIT, step=155, loss=None))
    assert seen().fit == replace(FIT, step=155, loss=None)
    fit.withdraw()
    fit.tell(FIT)  # a thread that comes late
    assert seen() == Session(NOTEBOOK, 0.0)
    assert [path.suffix for path in own_folder.iterdir()] == [""]


def test_a_script_without_a_session_tells_its_fit_alone(published, own_folder):
    fit = published(None)
    assert seen() is None
    fit.tell(FIT)
    assert seen() == Session(None, 0.0, None, FIT)
    fit.withdraw()
    assert seen() is None
    assert list(own_folder.iterdir()) == []


def test_a_session_with_a_fit_in_a_thread_is_busy_and_idle_since_its_last_cell(
    announcement, published
):
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
def test_a_loss_that_is_not_finite_is_told_in_plain_json(published, own_folder, loss, written):
    broken = replace(FIT, loss=loss, broken="loss NaN since step 31")
    published(broken)
    [path] = own_folder.iterdir()

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    told = json.loads(path.read_text(), parse_constant=refuse)["fit"]
    assert told == {**vars(broken), "loss": written}
    assert repr(seen().fit) == repr(broken)  # NaN is not equal to itself

    holder = monitor.Holder(7, "first.ipynb", "ada", 0.0, broken)
    card = monitor.CardReading(0, 0, "GAUDI2", "GAUDI2", True, 0, 1, holders=(holder,))
    record = as_record(monitor.Snapshot((card,), "simulator"))
    assert json.loads(json.dumps(record, allow_nan=False))["cards"][0]["holders"] == [
        {"pid": 7, "command": "first.ipynb", "user": "ada", "idle": 0.0, "fit": told}
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
def test_a_damaged_fit_is_passed_over_and_its_session_is_not(announcement, own_folder, wrong):
    [path] = own_folder.iterdir()
    told = json.loads(path.read_text())
    whole = {**FIT.as_record(), "of another release": 1}
    path.write_text(json.dumps({**told, "fit": whole}))
    assert seen() == Session(NOTEBOOK, 0.0, None, FIT)
    for fit in ({**whole, **wrong}, [whole], "fit", {}):
        path.write_text(json.dumps({**told, "fit": fit}))
        assert seen() == Session(NOTEBOOK, 0.0)
    path.write_text(json.dumps({**told, "fit": {**whole, "loss": math.nan}}))
    assert seen() is None


def test_a_fork_neither_changes_nor_removes_what_its_parent_tells(announcement, published):
    fit = published()
    if not (child := os.fork()):
        fit.tell(replace(FIT, model="Child"))
        announcement.begin()
        fit.withdraw()
        announcement.withdraw()
        nothing = seen() is None and sessions.own_fit() is None
        own = PublishedFit()
        own.tell(replace(FIT, model="Own"))
        told = sessions.session(os.getpid()) == Session(None, 0.0, None, replace(FIT, model="Own"))
        own.withdraw()
        os._exit(0 if nothing and told and seen() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert seen() == Session(NOTEBOOK, 0.0, None, FIT)


def test_a_fork_while_another_thread_tells_is_free_to_tell(published):
    fit, ended = published(), threading.Event()

    def go_on():
        while not ended.is_set():
            fit.tell(FIT)

    teller = threading.Thread(target=go_on)
    teller.start()
    try:
        for _ in range(20):
            if not (child := os.fork()):
                PublishedFit().tell(FIT)
                sessions.telling._here.end()  # as at its exit
                os._exit(0)
            deadline = time.monotonic() + 100
            while not (done := os.waitpid(child, os.WNOHANG))[0]:
                assert time.monotonic() < deadline, "the child waits for a lock that nobody holds"
                time.sleep(0.01)
            assert done[1] == 0
    finally:
        ended.set()
        teller.join()


def test_several_threads_tell_whole_files_and_the_newest_fit_counts(published):
    fits = [published(replace(FIT, model=name, step=0)) for name in ("First", "Second")]
    models, ended = set(), threading.Event()

    def go_on(fit):
        step = 0
        while not ended.is_set():
            step += 1
            fit.tell(replace(fit.told, step=step))

    threads = [threading.Thread(target=go_on, args=(fit,)) for fit in fits]
    for thread in threads:
        thread.start()
    for _ in range(300):
        models.add(seen().fit.model)
    ended.set()
    for thread in threads:
        thread.join()
    assert models == {"Second"}
    fits[1].withdraw()
    assert seen().fit == fits[0].told


def test_what_killed_processes_and_late_threads_tell_is_gone(own_folder, published):
    code = f"""
        import os, sys, threading
        from pathlib import Path
        from hpu_magic import private_folder, sessions
        private_folder._OPEN_TO_ALL = (Path({str(own_folder.parents[1])!r}),)
        fit, told = sessions.PublishedFit(), sessions.Fit("Net", began=1.0)
        def go_on():
            while True:
                fit.tell(told)
        threading.Thread(target=go_on, daemon=True).start()
        while sessions.session(os.getpid()) is None:
            pass
        print(flush=True)
        input()
    """
    ends = (lambda process: process.communicate("\n"), lambda process: process.kill())
    for end, left in zip(ends, (set(), {""}), strict=True):
        with started(code) as process:
            assert sessions.session(process.pid) == Session(None, 0.0, None, Fit("Net", began=1.0))
            end(process)
            process.communicate()
        assert sessions.session(process.pid) is None
        assert {path.suffix for path in own_folder.iterdir()} - {".new"} == left
    published()
    assert [int(path.name.partition("-")[0]) for path in own_folder.iterdir()] == [os.getpid()]


def test_who_is_asked_to_stop_says_so_at_once(announcement, published):
    assert sessions.stop_fit() is None
    published(FIT)  # that cannot be asked
    assert (sessions.stop_fit(), seen().fit.stoppable) == (None, False)
    presses = []
    published(replace(FIT, model="Asked"), lambda: presses.append("pressed"))
    assert seen().fit == sessions.own_fit() == replace(FIT, model="Asked", stoppable=True)
    assert sessions.stop_fit().model == "Asked"
    assert presses == ["pressed"]
    assert seen().fit == replace(FIT, model="Asked", stoppable=True, phase="stopping")


def test_a_fit_counts_as_stoppable_only_where_somebody_answers(published, monkeypatch):
    published(FIT, lambda: None)
    assert seen().fit.stoppable is False
    told = sessions.Announcement(NOTEBOOK, running=True)
    assert seen().fit.stoppable is False
    told.withdraw()
    told = sessions.Announcement(NOTEBOOK, running=True, stoppable=True)
    assert seen().fit.stoppable is True
    # A worker's commands are there, but pages talk to the kernel of its notebook.
    monkeypatch.setattr(sessions.telling._here, "name", "rank 1 of first.ipynb")
    assert sessions.own_fit().stoppable is False
    told.withdraw()


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
def test_a_fit_in_words(fit, brief, described):
    assert (fit.brief(), fit.described()) == (brief, described)
    holder = monitor.Holder(7, "first.ipynb", "ada", 0.0, fit)
    assert holder.described() == f"first.ipynb, in a fit: {brief}"
