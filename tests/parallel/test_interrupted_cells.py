"""Test interrupts at every line of the code that runs a cell on ranks."""

import signal
import sys
import threading

from hpu_magic.parallel import run
from hpu_magic.parallel.failure import RanksInterrupt
from hpu_magic.parallel.output import TerminalOutput


class TwoRanks(run.CellRun):
    """A cell on two ranks, which end after some steps or after an interrupt."""

    def __init__(self):
        super().__init__(self, [0, 1], TerminalOutput([0, 1]), self.count, grace=1.0)
        self.unanswered = {}
        self.steps = 0

    def _send(self, rank, code, number):
        self._waiting[rank] = {"reply", "output"}

    def count(self, states):
        self.steps += 1
        if self.steps == 4:
            self.interrupt(self.ranks)

    def interrupt(self, ranks):
        for rank in ranks:
            self._events.put((rank, "output", None))
            self._events.put((rank, "reply", None))

    def look(self):
        return []

    def leave_group(self):
        return False, []


def interrupt_at(number):
    """Interrupt the run of a cell at one of its lines.

    Return whether this line exists, the ranks that still run, and the error.
    """
    lines, error = 0, None

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != run.__file__:
            return None
        if event == "line":
            lines += 1
            if lines == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    cell = TwoRanks()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        cell.run("")
    except KeyboardInterrupt as interrupt:
        error = interrupt
    finally:
        sys.settrace(before)
    return lines >= number, set(cell._waiting), error


def test_handler_of_another_program_stays(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", None)  # a handler that is not Python's cannot be restored
    cell = TwoRanks()
    cell.run("")
    assert not cell._waiting


def test_cell_in_another_thread_keeps_the_handler():
    cell, before = TwoRanks(), signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=cell.run, args=("",))
    thread.start()
    thread.join(30)
    assert not cell._waiting
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupt_at_any_line_ends_all_ranks(monkeypatch):
    monkeypatch.setattr(run, "_TICK", 0.0)
    number, described = 1, 0
    while (outcome := interrupt_at(number))[0]:
        _, running, error = outcome
        assert not running, number
        assert isinstance(error, KeyboardInterrupt), number
        described += isinstance(error, RanksInterrupt)
        number += 1
    assert outcome[1:] == (set(), None)  # the cell ends without an interrupt
    assert described > 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
