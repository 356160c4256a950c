"""Lazy mode: what a flush that fails or is interrupted leaves behind."""

import signal
import sys

import pytest
import torch
from torch.nn import functional as F

from hpu_magic.simulator import activate, engine

activate(announce=False)

from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch import hpu  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402

pytestmark = pytest.mark.skipif(not is_lazy(), reason="about recorded work")


def bad_rows():
    """A recorded look-up past the end of its table."""
    table = torch.ones(3, 2, device="hpu")
    return F.embedding(torch.tensor([0, 7], device="hpu"), table)


def test_what_does_not_depend_on_the_failed_operation_still_runs():
    before, after = torch.zeros(3, device="hpu"), torch.zeros(3, device="hpu")
    htcore.mark_step()
    before.add_(1)
    found = bad_rows()
    after.add_(2)
    lengths = after * 3
    with pytest.raises(IndexError, match="index out of range"):
        htcore.mark_step()
    assert engine.load().pending_operations() == 0
    assert (before.tolist(), after.tolist(), lengths.tolist()) == ([1.0] * 3, [2.0] * 3, [6.0] * 3)
    with pytest.raises(RuntimeError, match=r"never computed.*index out of range"):
        found.cpu()


def test_all_that_depends_on_it_raises_in_the_words_of_the_first_error():
    found = bad_rows()
    sums = found.sum(0) + 1
    kept = torch.ones(2, 2, device="hpu")
    with pytest.raises(IndexError):
        htcore.mark_step()
    kept.mul_(2)
    with pytest.raises(RuntimeError, match="never computed"):
        (sums * 2).cpu()
    for failed in (found, sums):
        with pytest.raises(RuntimeError) as said:
            failed.cpu()
        assert str(said.value).count("failed with") == 1
    assert kept.tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.index_add_(0, torch.tensor([9], device="hpu"), torch.ones(1, 2, device="hpu")),
        lambda x: x.add_(bad_rows()[0]),
        lambda x: torch.add(bad_rows(), 1, out=x),
    ],
    ids=["itself", "dependent", "out"],
)
def test_a_tensor_with_memory_says_that_it_was_not_written(write):
    x = torch.ones(2, 2, device="hpu")
    view = x[0]
    htcore.mark_step()
    write(x)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        htcore.mark_step()
    for use in (x.cpu, view.tolist, lambda: (x + 1).cpu(), x.data_ptr, x.untyped_storage().tolist):
        with pytest.raises(RuntimeError, match=r"was not written.*(range|bounds)"):
            use()
    assert x.untyped_storage().nbytes() == 16
    x.zero_()
    assert (x + 1).tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    "overwrite",
    [
        lambda x: x.copy_(torch.full((2, 2), 4.0)),
        lambda x: x.copy_(torch.full((2, 2), 4.0, device="hpu")),
        lambda x: x.fill_(4),
        lambda x: torch.add(torch.full((2, 2), 3.0, device="hpu"), 1, out=x),
    ],
    ids=["from_the_host", "on_the_device", "fill", "out"],
)
def test_overwriting_all_of_a_failed_tensor_mends_it_and_a_part_does_not(overwrite):
    x = torch.ones(2, 2, device="hpu")
    htcore.mark_step()
    x.add_(bad_rows())
    with pytest.raises(IndexError):
        htcore.mark_step()
    x[0].zero_()
    with pytest.raises(RuntimeError, match="was not written"):
        htcore.mark_step()
    overwrite(x)
    assert x.tolist() == [[4.0, 4.0], [4.0, 4.0]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("flushed", [False, True])
def test_a_smaller_result_overwrites_a_part_of_a_failed_tensor(flushed):
    x = torch.ones(2, 3, device="hpu")
    view = x.t()
    htcore.mark_step()
    x.add_(bad_rows()[0, 0])
    if flushed:
        with pytest.raises(IndexError):
            htcore.mark_step()
    torch.add(torch.ones(2, device="hpu"), 1, out=x)
    with pytest.raises((IndexError, RuntimeError)):
        htcore.mark_step()
    for part in (x, view):
        with pytest.raises(RuntimeError, match="was not written"):
            part.cpu()
    torch.add(torch.ones(6, device="hpu"), 1, out=x)
    assert (x.tolist(), view.tolist()) == ([2.0] * 6, [[2.0, 2.0]] * 3)


@pytest.mark.parametrize(
    "draw",
    [
        torch.Tensor.normal_,
        torch.Tensor.uniform_,
        torch.Tensor.bernoulli_,
        torch.Tensor.random_,
        torch.Tensor.exponential_,
        torch.Tensor.cauchy_,
        torch.Tensor.log_normal_,
        lambda x: x.geometric_(0.5),
    ],
)
def test_a_failed_tensor_may_be_drawn_anew(draw):
    x = torch.ones(2, 2, device="hpu")
    htcore.mark_step()
    x.add_(bad_rows())
    with pytest.raises(IndexError):
        htcore.mark_step()
    state = hpu.get_rng_state()
    draw(x)
    hpu.set_rng_state(state)
    assert torch.equal(x.cpu(), draw(torch.ones(2, 2, device="hpu")).cpu())


def test_a_training_step_that_fails_names_its_weights_until_they_are_loaded():
    model = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Linear(2, 1)).to("hpu")
    saved = {name: value.cpu() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    other = torch.zeros(2, device="hpu")
    loss = model(torch.tensor([0, 7], device="hpu")).sum()
    loss.backward()
    optimizer.step()
    other.add_(1)
    with pytest.raises(IndexError):
        htcore.mark_step()
    assert other.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="was not written"):
        model[1].weight.detach().cpu()
    model.load_state_dict(saved)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value.cpu(), saved[name])


def test_a_capture_that_fails_or_is_refused_loses_no_write_to_other_tensors():
    x, y = torch.zeros(2, device="hpu"), torch.zeros(2, device="hpu")

    def capture(*steps):
        with hpu.graph(hpu.HPUGraph()):
            for step in steps:
                step()

    with pytest.raises(IndexError):
        capture(lambda: x.add_(1), bad_rows, lambda: x.add_(1))
    with pytest.raises(RuntimeError, match="reading a value on the host"):
        capture(lambda: y.add_(1), lambda: y.sum().item())
    assert (x.tolist(), y.tolist()) == ([2.0, 2.0], [1.0, 1.0])


PREPARE = """
import os, random, signal, threading, time
import torch
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.hpu as hpu
from hpu_magic.simulator import engine

signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt(seconds):
    def send():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)
    sender = threading.Thread(target=send)
    sender.start()
    return sender
"""


def test_interrupted_work_stays_recorded_and_runs_at_the_next_read(script):
    said = script(
        PREPARE
        + """
random.seed(0)
slow = torch.randn(256, 256, device="hpu")
interrupted = 0
for attempt in range(12):
    sums = torch.zeros(8, device="hpu")
    other = torch.zeros(8, device="hpu")
    heavy = slow
    htcore.mark_step()
    for _ in range(150):
        sums.add_(1)
        heavy = torch.tanh(heavy @ slow)
        other.sub_(2)
    sender = interrupt(random.uniform(0.0, 0.25))
    try:
        htcore.mark_step()
        sender.join()
    except KeyboardInterrupt:
        interrupted += engine.load().pending_operations() > 0
    while True:
        try:
            assert (sums.tolist(), other.tolist()) == ([150.0] * 8, [-300.0] * 8)
            break
        except KeyboardInterrupt:
            pass
    assert engine.load().pending_operations() == 0
print("interrupted in the middle", interrupted > 0)
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert said == "interrupted in the middle True\n"


def test_an_interrupted_backward_and_step_are_those_of_an_undisturbed_run(script):
    said = script(
        PREPARE
        + """
import copy
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(96, 96) for _ in range(30)]).to("hpu")
twin = copy.deepcopy(model)
data = torch.randn(256, 96, device="hpu")

def train(model, flush):
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        model(data).pow(2).mean().backward()
        optimizer.step()
        flush()

def interrupted():
    global seen
    sender = interrupt(0.12)
    try:
        htcore.mark_step()
        time.sleep(0.3)
    except KeyboardInterrupt:
        seen += engine.load().pending_operations() > 0
    sender.join()

seen = 0
train(twin, htcore.mark_step)
train(model, interrupted)
for one, other in zip(model.parameters(), twin.parameters()):
    assert torch.equal(one.detach().cpu(), other.detach().cpu())
print("same")
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert said == "same\n"


def test_what_nobody_can_see_after_an_interrupt_is_not_waited_for(script):
    said = script(
        PREPARE
        + """
x = torch.randn(512, 512, device="hpu")
sums = torch.zeros(2, device="hpu")
htcore.mark_step()
before = torch.hpu.memory_allocated()
y = x
for _ in range(20_000):
    y = torch.tanh(y @ x)
    sums.add_(1)
sender = interrupt(0.3)
began = time.monotonic()
try:
    htcore.mark_step()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began < 10)
print("pending", engine.load().pending_operations() > 20_000)
del y
print((x * 0 + 1).sum().item(), sums.tolist(), time.monotonic() - began < 20)
print("left", torch.hpu.memory_allocated() - before)
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert said.splitlines() == [
        "interrupted True",
        "pending True",
        "262144.0 [20000.0, 20000.0] True",
        "left 0",
    ]


def test_an_interrupt_or_exit_that_meets_a_shape_inference_of_pythons_is_raised():
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


def test_an_interrupted_capture_replays_nothing_and_loses_no_write(script):
    said = script(
        PREPARE
        + """
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
        sender = interrupt(0.2)
    time.sleep(1)
except KeyboardInterrupt:
    print("interrupted")
sender.join()
del y
print(hpu.is_current_stream_capturing(), sums.tolist())
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert said.splitlines() == ["interrupted", "False [300.0, 300.0]"]


def test_the_handler_of_a_signal_may_read_what_the_flush_has_not_reached(script):
    said = script(
        PREPARE
        + """
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
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert said == "[[201.0, 201.0]] [200.0, 200.0]\n"


def test_a_forked_child_does_not_read_what_waits_in_its_parent(script):
    said = script(
        PREPARE
        + """
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

read, written, whole = (torch.ones(2, device="hpu") for _ in range(3))
done = read * 4
htcore.mark_step()
written[0].add_(1)
fresh = read * 2
in_child(read, done, written, written[1:], fresh)
htcore.mark_step()
in_child(read, done, written, fresh)
whole.add_(1)
if os.fork() == 0:
    whole.copy_(torch.full((2,), 7.0))
    print(whole.tolist())
    sys.stdout.flush()
    os._exit(0)
os.wait()
print(whole.tolist())
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    waits = "This tensor waits for operations"
    assert said.splitlines() == [
        *("[1.0, 1.0]", "[4.0, 4.0]", waits, waits, waits),
        *("[1.0, 1.0]", "[4.0, 4.0]", "[2.0, 1.0]", "[2.0, 2.0]"),
        *("[7.0, 7.0]", "[2.0, 2.0]"),
    ]


def test_an_interrupt_while_shapes_are_inferred_is_raised(script):
    said = script(
        PREPARE
        + """
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
print(sent == 50, raised > 45)  # Python drops what is raised in a destructor
""",
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert said == "True True\n"
