"""Backward passes run on the thread that calls backward()."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch


def on_a_new_thread(run):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: (threading.get_ident(), run())).result()


def record_threads(tensor, seen):
    """Record the thread that computes the gradient of this tensor."""
    tensor.register_hook(lambda gradient: seen.append(threading.get_ident()))
    return tensor


ROOTS = {
    "a loss": lambda y: y.sum(),
    "a tensor with a gradient": lambda y: y,
    "a loss on the CPU": lambda y: y.cpu().sum(),
    "two roots": lambda y: (y.sum(), (y * 2).cpu()),
}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("forward", ["here", "there"])
def test_backward_runs_on_its_calling_thread(root, forward):
    seen = []

    def build(device):
        x = torch.ones(4, device=device, requires_grad=True)
        y = record_threads(torch.sin(record_threads(x * 2, seen)) * 3, seen)
        roots = ROOTS[root](y)
        return x, roots if isinstance(roots, tuple) else (roots,)

    def backward(x, roots):
        torch.autograd.backward(roots, [torch.ones_like(each) for each in roots])
        return x.grad.tolist()

    expected = backward(*build("cpu"))
    built = build("hpu") if forward == "here" else None
    seen.clear()
    thread, gradient = on_a_new_thread(lambda: backward(*(built or build("hpu"))))
    assert gradient == expected
    assert seen == [thread, thread]


def test_backward_runs_on_its_calling_thread_with_multithreading_enabled():
    seen = []
    with torch.autograd.set_multithreading_enabled(True):
        x = torch.ones(4, device="hpu", requires_grad=True)
        record_threads(x * 2, seen).sum().backward()
    assert seen == [threading.get_ident()]
