"""Test recorded operations in lazy mode after an interrupt, a signal or a fork."""

import signal
import sys

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy

pytestmark = pytest.mark.skipif(not is_lazy(), reason="only lazy mode records operations")

PREPARE = """
import os, random, signal, time
import torch
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.hpu as hpu
from hpu_magic.simulator import engine

signal.signal(signal.SIGALRM, signal.default_int_handler)

def interrupt_in(seconds):  # 0 cancels the timer
    signal.setitimer(signal.ITIMER_REAL, seconds)
"""


@pytest.fixture
def lazily(forked_script):
    """Run code in a process in lazy mode and return its output."""
    """Run code in a process in lazy mode and return what it printed."""
    return lambda code: forked_script(PREPARE + code, simulated=True, PT_HPU_LAZY_MODE="1")


def test_interrupted_operations_stay_recorded_and_run_on_the_next_read(lazily):
    output = lazily(
        """
slow = torch.randn(512, 512, device="hpu")
interrupted = attempts = 0
while interrupted < 2 and attempts < 40:
    attempts += 1
    sums = torch.zeros(8, device="hpu")
    other = torch.zeros(8, device="hpu")
    heavy = slow
    htcore.mark_step()
    for _ in range(150):
        sums.add_(1)
        heavy = torch.tanh(heavy @ slow)
        other.sub_(2)
    try:
        interrupt_in(0.05)
        htcore.mark_step()
        interrupt_in(0)
    except KeyboardInterrupt:
        interrupted += engine.load().pending_operations() > 0
    assert (sums.tolist(), other.tolist()) == ([150.0] * 8, [-300.0] * 8)
    assert engine.load().pending_operations() == 0
print("interrupted in the middle", interrupted)
"""
    )
    assert output == "interrupted in the middle 2\n"


def test_interrupted_training_step_gives_the_same_weights(lazily):
    output = lazily(
        """
import copy
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(384, 384) for _ in range(30)]).to("hpu")
twin = copy.deepcopy(model)
data = torch.randn(4096, 384, device="hpu")  # takes several check intervals of 100 ms

def trainer(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    def step():
        optimizer.zero_grad()
        model(data).pow(2).mean().backward()
        optimizer.step()
    return step

step, uninterrupted = trainer(model), trainer(twin)
interrupted = steps = 0
while interrupted < 2 and steps < 20:
    steps += 1
    step()
    try:
        interrupt_in(0.05)
        htcore.mark_step()
        interrupt_in(0)
    except KeyboardInterrupt:
        interrupted += engine.load().pending_operations() > 0
for _ in range(steps):
    uninterrupted()
    htcore.mark_step()
for one, other in zip(model.parameters(), twin.parameters()):
    assert torch.equal(one.detach().cpu(), other.detach().cpu())
print("interrupted in the middle", interrupted)
"""
    )
    assert output == "interrupted in the middle 2\n"


def test_dropped_results_are_not_computed_after_an_interrupt(lazily):
    output = lazily(
        """
x = torch.randn(512, 512, device="hpu")
sums = torch.zeros(2, device="hpu")
htcore.mark_step()
before = torch.hpu.memory_allocated()
y = x
for _ in range(20_000):
    y = torch.tanh(y @ x)
    sums.add_(1)
began = time.process_time()
try:
    interrupt_in(0.3)
    htcore.mark_step()
except KeyboardInterrupt:
    print("interrupted", time.process_time() - began < 10)
print("pending", engine.load().pending_operations() > 20_000)
del y
print((x * 0 + 1).sum().item(), sums.tolist(), time.process_time() - began < 20)
print("left", torch.hpu.memory_allocated() - before)
"""
    )
    assert output.splitlines() == [
        "interrupted True",
        "pending True",
        "262144.0 [20000.0, 20000.0] True",
        "left 0",
    ]


def test_interrupt_or_exit_during_shape_inference_in_python_is_raised():
    class Exit(SystemExit):
        pass

    def end(*_):
        raise Exit

    def inferring(frame, event, argument):
        if event == "call" and frame.f_code.co_name.startswith("meta_"):
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    for columns, handler, ends in (
        (41, signal.default_int_handler, KeyboardInterrupt),
        (43, end, Exit),
    ):
        before = signal.signal(signal.SIGINT, handler)
        try:
            sys.setprofile(inferring)
            with pytest.raises(ends):
                torch.ones(7, columns, device="hpu")
        finally:
            sys.setprofile(None)
            signal.signal(signal.SIGINT, before)
    assert torch.ones(7, 41, device="hpu").sum().item() == 7 * 41


def test_interrupted_capture_keeps_all_writes(lazily):
    output = lazily(
        """
x = torch.randn(512, 512, device="hpu")
sums = torch.zeros(2, device="hpu")
htcore.mark_step()
graph = hpu.HPUGraph()
try:
    with hpu.graph(graph):
        y = x
        for _ in range(300):
            y = torch.tanh(y @ x)
            sums.add_(1)
        interrupt_in(0.2)
    time.sleep(1)
except KeyboardInterrupt:
    print("interrupted")
del y
print(hpu.is_current_stream_capturing(), sums.tolist())
"""
    )
    assert output.splitlines() == ["interrupted", "False [300.0, 300.0]"]


def test_signal_handler_may_read_pending_results(lazily):
    output = lazily(
        """
x = torch.randn(512, 512, device="hpu")
sums = torch.zeros(2, device="hpu")
htcore.mark_step()
y = x
for _ in range(200):
    y = torch.tanh(y @ x)
    sums.add_(1)
read = []
signal.signal(signal.SIGALRM, lambda *_: read.append((sums + 1).tolist()))
signal.setitimer(signal.ITIMER_REAL, 0.2)
htcore.mark_step()
while not read:
    time.sleep(0.05)
print(read, sums.tolist())
"""
    )
    assert output == "[[201.0, 201.0]] [200.0, 200.0]\n"


def test_forked_child_cannot_read_pending_results_of_its_parent(lazily):
    output = lazily(
        """
import sys

def in_child(*tensors):
    if os.fork() == 0:
        for tensor in tensors:
            try:
                print(tensor.tolist())
            except RuntimeError as error:
                print(str(error).partition(" that ")[0])
        sys.stdout.flush()
        os._exit(0)
    os.wait()

read, written, copied = (torch.ones(2, device="hpu") for _ in range(3))
done = read * 4
htcore.mark_step()
written[0].add_(1)
fresh = read * 2
in_child(read, done, written, written[1:], fresh)
htcore.mark_step()
in_child(read, done, written, fresh)
copied.add_(1)
if os.fork() == 0:
    copied.copy_(torch.full((2,), 7.0))
    print(copied.tolist())
    sys.stdout.flush()
    os._exit(0)
os.wait()
print(copied.tolist())
"""
    )
    pending = "This tensor depends on operations"
    assert output.splitlines() == [
        *("[1.0, 1.0]", "[4.0, 4.0]", pending, pending, pending),
        *("[1.0, 1.0]", "[4.0, 4.0]", "[2.0, 1.0]", "[2.0, 2.0]"),
        *("[7.0, 7.0]", "[2.0, 2.0]"),
    ]


def test_interrupt_during_shape_inference_is_raised(lazily):
    output = lazily(
        """
from torch.nn import functional as F

def interrupted(*_):
    global sent
    sent += 1
    raise KeyboardInterrupt

sent = raised = 0
signal.signal(signal.SIGALRM, interrupted)
random.seed(0)
x = torch.ones(1, 2, 16, 16, device="hpu")
for attempt in range(50):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.004))
        for size in range(1, 300):
            F.grid_sample(x, torch.zeros(1, attempt + 1, size, 2, device="hpu"))
    except KeyboardInterrupt:
        raised += 1
print(sent == 50, raised > 45, flush=True)  # Python ignores exceptions in a destructor
# If the interrupt hits an exec() of PyTorch, Python exits with an error although it was caught.
os._exit(0)
"""
    )
    assert output == "True True\n"
