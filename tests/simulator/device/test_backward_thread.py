"""Backward passes run on the thread that calls backward(), whichever thread that is."""

import threading

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)


def on_a_fresh_thread(run):
    result = []
    thread = threading.Thread(target=lambda: result.append((threading.get_ident(), run())))
    thread.start()
    thread.join()
    return result[0]


def note_threads(tensor, seen):
    """Have the thread noted that computes this tensor's gradient."""
    tensor.register_hook(lambda gradient: seen.append(threading.get_ident()))
    return tensor


ROOTS = {
    "a loss": lambda y: y.sum(),
    "a tensor with a gradient given": lambda y: y,
    "a loss on the CPU": lambda y: y.cpu().sum(),
    "two roots": lambda y: (y.sum(), (y * 2).cpu()),
}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("forward", ["here", "there"])
def test_backward_runs_on_the_thread_that_calls_it(root, forward):
    seen = []

    def build(device):
        x = torch.ones(4, device=device, requires_grad=True)
        y = note_threads(torch.sin(note_threads(x * 2, seen)) * 3, seen)
        roots = ROOTS[root](y)
        return x, roots if isinstance(roots, tuple) else (roots,)

    def backward(x, roots):
        torch.autograd.backward(roots, [torch.ones_like(each) for each in roots])
        return x.grad.tolist()

    expected = backward(*build("cpu"))
    built = build("hpu") if forward == "here" else None
    seen.clear()
    thread, gradient = on_a_fresh_thread(lambda: backward(*(built or build("hpu"))))
    assert gradient == expected
    assert seen == [thread, thread]


def test_backward_runs_on_the_calling_thread_where_multithreading_is_asked_for():
    seen = []
    with torch.autograd.set_multithreading_enabled(True):
        x = torch.ones(4, device="hpu", requires_grad=True)
        note_threads(x * 2, seen).sum().backward()
    assert seen == [threading.get_ident()]
