"""Test tensors in lazy mode after recorded operations have failed."""

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.internal import is_lazy

from hpu_magic.simulator import engine

pytestmark = pytest.mark.skipif(not is_lazy(), reason="only lazy mode records operations")


def bad_rows():
    """Return a recorded look-up beyond the end of its table."""
    table = torch.ones(3, 2, device="hpu")
    return table[torch.tensor([0, 7], device="hpu")]


def unwritten():
    """Return a 2 x 2 tensor that misses a write because its graph failed."""
    x = torch.ones(2, 2, device="hpu")
    htcore.mark_step()
    x.add_(bad_rows())
    with pytest.raises(IndexError):
        htcore.mark_step()
    return x


def test_operations_independent_of_a_failed_one_still_run():
    before, after = torch.zeros(3, device="hpu"), torch.zeros(3, device="hpu")
    htcore.mark_step()
    before.add_(1)
    rows = bad_rows()
    after.add_(2)
    lengths = after * 3
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        htcore.mark_step()
    assert engine.load().pending_operations() == 0
    assert (before.tolist(), after.tolist(), lengths.tolist()) == ([1.0] * 3, [2.0] * 3, [6.0] * 3)
    with pytest.raises(RuntimeError, match=r"never computed.*index 7 is out of bounds"):
        rows.cpu()


def test_dependent_operations_raise_the_first_error():
    rows = bad_rows()
    sums = rows.sum(0) + 1
    kept = torch.ones(2, 2, device="hpu")
    with pytest.raises(IndexError):
        htcore.mark_step()
    kept.mul_(2)
    with pytest.raises(RuntimeError, match="never computed"):
        (sums * 2).cpu()
    for failed in (rows, sums):
        with pytest.raises(RuntimeError) as error:
            failed.cpu()
        assert str(error.value).count("failed with") == 1
    assert kept.tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.index_put_((torch.tensor([9]).to("hpu"),), torch.ones(1, 2, device="hpu")),
        lambda x: x.add_(bad_rows()[0]),
        lambda x: torch.add(bad_rows(), 1, out=x),
    ],
    ids=["itself", "dependent", "out"],
)
def test_unwritten_tensor_raises_an_error_until_it_is_overwritten(write):
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
def test_only_a_complete_overwrite_clears_the_error(overwrite):
    x = unwritten()
    x[0].zero_()
    with pytest.raises(RuntimeError, match="was not written"):
        htcore.mark_step()
    overwrite(x)
    assert x.tolist() == [[4.0, 4.0], [4.0, 4.0]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("flushed", [False, True])
def test_smaller_output_does_not_clear_the_error(flushed):
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


def test_output_of_data_dependent_size_does_not_clear_the_error():
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
def test_random_numbers_overwrite_an_unwritten_tensor(draw):
    x = unwritten()
    state = hpu.get_rng_state()
    draw(x)
    hpu.set_rng_state(state)
    assert torch.equal(x.cpu(), draw(torch.ones(2, 2, device="hpu")).cpu())


def test_failed_training_step_invalidates_weights_until_they_are_loaded():
    model = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Linear(2, 1)).to("hpu")
    saved = {name: value.cpu() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    other = torch.zeros(2, device="hpu")
    rows = model[0].weight[torch.tensor([0, 7], device="hpu")]
    loss = model[1](rows).sum()
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


def test_failed_or_rejected_capture_keeps_writes_to_other_tensors():
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
