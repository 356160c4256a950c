"""Test first derivatives of compiled code in all variants, and errors for second derivatives."""

import pytest

NOT_SUPPORTED = "supports only first derivatives|does not currently support double backward"


def _product(x, w):
    return (x.exp() * w).sum()


def _saving_only_results(x, w):
    return (x.exp() + w.exp()).sum()


def _writing_a_buffer(torch, compute):
    """Return a module that writes to a buffer, so that AOTAutograd's own node is kept."""

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1, device="hpu"))

        def forward(self, x, w):
            self.calls.add_(1)
            return compute(x, w, self.calls)

    return Counting()


@pytest.fixture(params=["one node", "results only", "AOTAutograd's wrapper", "sizes that change"])
def function(request, torch):
    """A function whose compiled form saves its inputs or its intermediate results."""
    return {
        "results only": _saving_only_results,
        "AOTAutograd's wrapper": _writing_a_buffer(
            torch, lambda x, w, calls: _saving_only_results(x, w)
        ),
    }.get(request.param, _product)


@pytest.fixture
def compiled(request, torch, compile_on_hpu, function):
    """The compiled function; for changing sizes, it has been called once with another size."""
    changes = "sizes that change" in request.node.callspec.id
    run = compile_on_hpu(function, dynamic=True if changes else None)
    if changes:
        run(torch.ones(3, device="hpu"), torch.ones(3, device="hpu"))
    return run


def _leaves(torch):
    return [
        torch.tensor(values, device="hpu", requires_grad=True)
        for values in ([1.0, 2.0], [3.0, 4.0])
    ]


def _gradients(torch, run, leaves):
    return torch.autograd.grad(run(*leaves), leaves, create_graph=True)


def _penalized(torch, run, leaves):
    loss = run(*leaves)
    gradients = torch.autograd.grad(loss, leaves, create_graph=True)
    return loss + sum(gradient.square().sum() for gradient in gradients)


def _of_an_earlier_leaf(torch, run, leaves):
    x, w = leaves
    gradients = _gradients(torch, run, [x * 1, w * 1])
    return torch.autograd.grad(gradients[0].sum(), x, allow_unused=True)


def _of_the_upstream_gradient(torch, run, leaves):
    upstream = torch.ones((), device="hpu", requires_grad=True)
    (gradient,) = torch.autograd.grad(run(*leaves), leaves[0], upstream, create_graph=True)
    return torch.autograd.grad(gradient.sum(), upstream, allow_unused=True)


def _through_a_checkpoint(torch, run, leaves):
    from torch.utils.checkpoint import checkpoint

    loss = checkpoint(run, *leaves, use_reentrant=False)
    gradients = torch.autograd.grad(loss, leaves, create_graph=True)
    return torch.autograd.grad(gradients[0].sum(), leaves, allow_unused=True)


SECOND = {
    "backward": lambda torch, run, leaves: _penalized(torch, run, leaves).backward(),
    "backward(inputs=)": lambda torch, run, leaves: _penalized(torch, run, leaves).backward(
        inputs=leaves[:1]
    ),
    "grad": lambda torch, run, leaves: torch.autograd.grad(_penalized(torch, run, leaves), leaves),
    "grad of one": lambda torch, run, leaves: torch.autograd.grad(
        _penalized(torch, run, leaves), leaves[1], allow_unused=True
    ),
    "earlier leaf": _of_an_earlier_leaf,
    "upstream gradient": _of_the_upstream_gradient,
    "checkpoint": _through_a_checkpoint,
    "hessian": lambda torch, run, leaves: torch.autograd.functional.hessian(run, tuple(leaves)),
    "hessian, vectorized": lambda torch, run, leaves: torch.autograd.functional.hessian(
        run, tuple(leaves), vectorize=True
    ),
    **{
        name: lambda torch, run, leaves, name=name: getattr(torch.autograd.functional, name)(
            run, tuple(leaves), tuple(leaves)
        )
        for name in ("hvp", "vhp", "jvp")
    },
    "gradgradcheck": lambda torch, run, leaves: torch.autograd.gradgradcheck(
        run, leaves, eps=1e-2, atol=0.1
    ),
}


@pytest.mark.parametrize("way", SECOND)
def test_second_derivatives_are_rejected(torch, compiled, way):
    with pytest.raises(RuntimeError, match=NOT_SUPPORTED):
        SECOND[way](torch, compiled, _leaves(torch))


def _backward_of_some(torch, run, leaves):
    run(*leaves).backward(inputs=leaves[1:])
    return [leaf.grad for leaf in leaves]


def _backward_of_intermediates(torch, run, leaves):
    middle = [leaf * 2 for leaf in leaves]
    for each in middle:
        each.retain_grad()
    run(*middle).backward(inputs=middle)
    return [each.grad for each in (*leaves, *middle)]


def _retained(torch, run, leaves):
    loss = run(*leaves)
    loss.backward(retain_graph=True)
    loss.backward(inputs=leaves[0])
    return [leaf.grad for leaf in leaves]


def _hooked(torch, run, leaves):
    seen = []
    leaves[0].register_hook(lambda gradient: gradient * 3)
    leaves[1].register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    middle = leaves[0] * 2
    middle.register_hook(lambda gradient: seen.append(gradient) or gradient + 1)
    loss = run(middle, leaves[1])
    loss.register_hook(lambda gradient: gradient * 5)
    loss.backward()
    return [*seen, *(leaf.grad for leaf in leaves)]


def _with_an_unused_leaf(torch, run, leaves):
    others = [torch.ones(1, device="hpu", requires_grad=True)]
    return torch.autograd.grad(run(*leaves), leaves + others, allow_unused=True)


def _batched(torch, run, leaves):
    upstream = torch.tensor([1.0, 2.0, 3.0], device="hpu")
    return torch.autograd.grad(run(*leaves), leaves, upstream, is_grads_batched=True)


FIRST = {
    "grad": lambda torch, run, leaves: torch.autograd.grad(run(*leaves), leaves),
    "create_graph": _gradients,
    "backward(inputs=)": _backward_of_some,
    "intermediate inputs": _backward_of_intermediates,
    "retain_graph": _retained,
    "hooks": _hooked,
    "unused leaf": _with_an_unused_leaf,
    "batched": _batched,
    "jacobian": lambda torch, run, leaves: torch.autograd.functional.jacobian(run, tuple(leaves)),
    "vjp": lambda torch, run, leaves: torch.autograd.functional.vjp(run, tuple(leaves))[1],
    "func.grad": lambda torch, run, leaves: torch.func.grad(run, argnums=(0, 1))(*leaves),
    "func.jacrev": lambda torch, run, leaves: torch.func.jacrev(run, argnums=(0, 1))(*leaves),
}


@pytest.mark.parametrize("way", FIRST)
def test_first_derivatives_match_eager_mode(torch, function, compiled, way):
    if way.startswith("func") and isinstance(function, torch.nn.Module):
        pytest.skip("PyTorch's transforms reject functions that write a buffer")
    actual, expected = (FIRST[way](torch, run, _leaves(torch)) for run in (compiled, function))
    assert [each is None for each in actual] == [each is None for each in expected]
    for one, other in zip(actual, expected, strict=True):
        if one is not None:
            torch.testing.assert_close(one.detach(), other.detach())


def test_sum_of_several_results_has_first_derivatives_only(torch, compile_on_hpu):
    shifting = _writing_a_buffer(torch, lambda x, w, calls: x.exp() * w + calls)
    run, leaves = compile_on_hpu(shifting), _leaves(torch)
    gradients = torch.autograd.grad(run(*leaves).sum(), leaves, create_graph=True)
    expected = torch.autograd.grad(_product(*leaves), leaves)
    torch.testing.assert_close([each.detach() for each in gradients], list(expected))
    with pytest.raises(RuntimeError, match=NOT_SUPPORTED):
        torch.autograd.grad(gradients[0].sum(), leaves, allow_unused=True)


def test_second_backward_needs_the_graph(torch, compiled):
    loss = compiled(*_leaves(torch))
    loss.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


def test_detached_gradients_may_be_used_in_another_graph(torch, compiled):
    leaves = _leaves(torch)
    other = torch.tensor([2.0, 3.0], device="hpu", requires_grad=True)
    gradient = _gradients(torch, compiled, leaves)[0]
    (gradient.detach() * other).sum().backward()
    torch.testing.assert_close(other.grad, gradient.detach())


@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
def test_forward_mode_is_rejected_unless_pytorch_computes_it(torch, compile_on_hpu, trains):
    from torch.autograd import forward_ad

    run = compile_on_hpu(lambda x: x.exp())
    x = torch.ones(2, device="hpu", requires_grad=trains)
    message = ""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        try:
            tangent = forward_ad.unpack_dual(run(dual)).tangent
        except NotImplementedError as error:
            message = str(error)
    if message:
        assert "does not support forward-mode derivatives" in message
    else:  # since torch 2.15, without the compiled graph
        torch.testing.assert_close(tangent, x.detach().exp())
