"""Random programs of several threads, with forks and interrupts at random moments.

``python tests/race_programs.py --seconds S --seed N`` runs programs one after another until the
time is over and each kind of step has run. Each thread compares its device tensors with CPU
tensors. After an interrupt, a tensor may report that it was never computed, but must not have wrong
values. Prints the number of steps as JSON. Fails with a traceback and the seed after a wrong value,
a hanging thread or child, or an unexpected error.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402

MOST_SECONDS = 60  # time limit of one program on a busy machine
EVERYTHING = ("programs", "forks", "interrupts", "reads")
EDGE = 160  # tensors of 100 KiB, whose memory the device caches

# Functions of two tensors that return a new tensor with small integers, which are exact.
PURE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: (a + b) % 61,
    "mul": lambda a, b: (a * b) % 61,
    "relu": lambda a, b: torch.relu(a - b),
    "where": lambda a, b: torch.where(a > b, a, b),
    "cat": lambda a, b: torch.cat([a[: EDGE // 2], b[EDGE // 2 :]]),
    "sort": lambda a, b: a.sort(1).values,
    "transpose": lambda a, b: a.t().contiguous(),
    "cumsum": lambda a, b: a.cumsum(0) % 61,
}
IN_PLACE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add_": lambda a, b: a.add_(b).remainder_(61),
    "fill_row": lambda a, b: a[3].fill_(7),
    "copy_rows": lambda a, b: a[:5].copy_(b[5:10]),
    "out": lambda a, b: torch.maximum(a.clone(), b, out=a),
}


class Lost(Exception):
    """A tensor reported that it was not computed because of an interrupt."""


@contextlib.contextmanager
def reported_as_lost() -> Iterator[None]:
    """Raise `Lost` instead of the device's error about a tensor that was never computed."""
    try:
        yield
    except RuntimeError as error:
        if "never computed" in str(error):
            raise Lost from error
        raise


class Worker:
    """The tensors of a thread and their expected values."""

    def __init__(self, seed: int, shared: Shared, done: Counter[str]) -> None:
        self.random = random.Random(seed)
        self.shared, self.done = shared, done
        self.others = [self.read, self.replay, self.mark, self.train, self.churn]
        self.renew()

    def renew(self) -> None:
        """Create new tensors."""
        self.device: list[torch.Tensor] = []
        self.host: list[torch.Tensor] = []
        for _ in range(3):
            values = torch.full((EDGE, EDGE), float(self.random.randrange(61)))
            values[0] = torch.arange(EDGE) % 61
            self.device.append(values.to("hpu"))
            self.host.append(values)

    def step(self) -> None:
        """Run a random action; create new tensors if an interrupt prevented a computation."""
        act = self.random.choice([*3 * [self.compute], *2 * [self.write], *self.others])
        try:
            with reported_as_lost():
                act()
        except Lost:
            self.done["lost"] += 1
            self.renew()
        self.done["steps"] += 1

    def pick(self) -> int:
        return self.random.randrange(len(self.device))

    def compute(self) -> None:
        run = self.random.choice(list(PURE.values()))
        i, j = self.pick(), self.pick()
        host = run(self.host[i], self.host[j])
        device = run(self.device[i], self.device[j])
        k = self.pick()
        self.device[k], self.host[k] = device, host

    def write(self) -> None:
        run = self.random.choice(list(IN_PLACE.values()))
        i, j = self.pick(), self.pick()
        before = [*self.device], [*self.host]
        host = self.host[i].clone()
        run(host, host if i == j else self.host[j])
        try:
            run(self.device[i], self.device[j])
        except BaseException:
            # The tensor may or may not be written, so it is not compared.
            self.device, self.host = before
            del self.device[i], self.host[i]
            self.device.append(torch.zeros(EDGE, EDGE, device="hpu"))
            self.host.append(torch.zeros(EDGE, EDGE))
            raise
        self.host[i] = host

    def read(self) -> None:
        i = self.pick()
        values = self.device[i].cpu()
        assert torch.equal(values, self.host[i]), f"tensor {i} has wrong values"
        self.done["reads"] += 1

    def replay(self) -> None:
        if self.shared.graph is not None and self.random.random() < 0.8:
            self.shared.graph.replay()
        values = self.shared.spread.cpu()
        assert values.min() == values.max(), "a read saw half of a replay"

    def mark(self) -> None:
        htcore.mark_step()

    def train(self) -> None:
        weight = torch.full((8, 8), 2.0, device="hpu", requires_grad=True)
        (weight @ weight).sum().backward()
        assert weight.grad.tolist() == [[32.0] * 8] * 8

    def churn(self) -> None:
        made = [torch.empty(1 << 18, device="hpu") for _ in range(self.random.randrange(4))]
        made += [torch.ones(1 << 16, device="hpu").mul_(2)]
        htcore.mark_step()
        del made


class Shared:
    """A graph that all threads replay; a replay writes one number to all elements."""

    def __init__(self) -> None:
        self.count = torch.zeros(1, device="hpu")
        self.spread = torch.zeros(EDGE, EDGE, device="hpu")
        self.graph = None
        if is_lazy():
            self.graph = torch.hpu.HPUGraph()
            with torch.hpu.graph(self.graph):
                self.count.add_(1)
                self.spread.copy_(self.count.expand(EDGE, EDGE))


def fork(done: Counter[str]) -> None:
    """Fork; in the child, CPU tensors must work and the device must raise an error."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            assert int((torch.ones(1 << 16) + 1).sum()) == 1 << 17
            try:
                torch.ones(1, device="hpu")
            except RuntimeError:
                code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    end = time.monotonic() + MOST_SECONDS
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("a forked child hangs")
        time.sleep(0.001)
    assert status == 0, f"a forked child ended with {status}"
    done["forks"] += 1


def fork_often(times: int, done: Counter[str]) -> None:
    """Fork several times."""
    # A thread's first PyTorch operation acquires a lock in PyTorch. If another thread holds this
    # lock during a fork, the child could never acquire it.
    torch.ones(1)
    for _ in range(times):
        fork(done)


def work(worker: Worker, steps: int) -> None:
    """Run steps."""
    for _ in range(steps):
        worker.step()


def steps_until(end: float, worker: Worker) -> None:
    """Run steps; in Python 3.13, `try` covers a call, but not the jump at the end of a loop."""
    while time.monotonic() < end:
        worker.step()


def interrupted_work(worker: Worker, times: int, chance: random.Random) -> None:
    """Run steps on the main thread until an interrupt, several times."""
    for _ in range(times):
        seconds = chance.random() * 0.02
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        end = time.monotonic() + MOST_SECONDS
        try:
            timer.start()
            steps_until(end, worker)
        except KeyboardInterrupt:
            worker.done["interrupts"] += 1
        else:
            raise AssertionError("an interrupt was swallowed")
        timer.join()
        worker.renew()


def program(seed: int, done: Counter[str]) -> None:
    """Run one program and raise the first error of a thread."""
    chance = random.Random(seed)
    shared = Shared()
    errors: list[BaseException | None] = []
    threading.excepthook = lambda ended: errors.append(ended.exc_value)
    workers = [Worker(seed * 100 + i, shared, done) for i in range(chance.randrange(2, 4))]
    threads = [threading.Thread(target=work, args=(each, 40), daemon=True) for each in workers]
    if chance.random() < 0.7:
        forks = chance.randrange(1, 4)
        threads.append(threading.Thread(target=fork_often, args=(forks, done), daemon=True))
    for thread in threads:
        thread.start()
    own = Worker(seed * 100 + 99, shared, done)
    if chance.random() < 0.5:
        interrupted_work(own, 6, chance)
    else:
        work(own, 40)
    for thread in threads:
        thread.join(MOST_SECONDS)
        assert not thread.is_alive(), "threads wait for each other"
    for error in errors:
        raise error or AssertionError("a thread ended")
    done["programs"] += 1


def main() -> None:
    """Run programs until the time is over and each kind of step has run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    done: Counter[str] = Counter()
    end = time.monotonic() + options.seconds
    seed = options.seed
    while time.monotonic() < end or not all(done[kind] for kind in EVERYTHING):
        faulthandler.dump_traceback_later(3 * MOST_SECONDS, exit=True)
        try:
            program(seed, done)
        except BaseException:
            print(f"seed {seed} ({'lazy' if is_lazy() else 'eager'} mode)", file=sys.stderr)
            raise
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(done))


if __name__ == "__main__":
    main()
