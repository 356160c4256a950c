"""Lazy mode: what a flush that fails leaves behind."""

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


def unwritten():
    """A tensor with memory, 2 x 2, that lacks a write because its graph failed."""
    x = torch.ones(2, 2, device="hpu")
    htcore.mark_step()
    x.add_(bad_rows())
    with pytest.raises(IndexError):
        htcore.mark_step()
    return x


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
    x = unwritten()
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


def test_a_result_whose_size_depends_on_data_overwrites_no_failed_tensor():
    x = torch.ones(2, 3, dtype=torch.long, device="hpu")
    view = x.t()
    htcore.mark_step()
    x.add_(bad_rows()[0, 0].long())
    with pytest.raises(IndexError):
        htcore.mark_step()
    with pytest.raises(RuntimeError, match="was not written"):
        torch.nonzero(torch.tensor([0, 1, 0, 1], device="hpu"), out=x)
    for part in (x, view):
        with pytest.raises(RuntimeError, match="was not written"):
            part.cpu()
    x.fill_(5)
    torch.nonzero(torch.tensor([0, 1, 0], device="hpu"), out=x[:1, :1])
    assert (x.tolist(), view.tolist()) == ([[1, 5, 5], [5, 5, 5]], [[1, 5], [5, 5], [5, 5]])


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
    x = unwritten()
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
