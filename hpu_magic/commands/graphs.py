"""HPU Graphs: capture code, replay it, and wrap models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_magic.commands.parameters import Inputs, Model, Tensors

if TYPE_CHECKING:
    from hpu_magic.runtime.graphs.graphs import CapturedGraph, GraphList, ReplayReport
    from hpu_magic.runtime.graphs.wrapping import WrapReport


def graph(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    inputs: Tensors = (),
    warmup: int = 1,
    restart: bool = False,
) -> CapturedGraph:
    """Capture ``function(*inputs)`` into an HPU Graph, to replay it without Python.

    Needs lazy mode. Code in a capture cannot read values (``print``, ``.item()``, ``.cpu()``).

    Parameters
    ----------
    function : callable
        The code to capture.
    name : str, optional
        The name of the graph; without it, the function's name.
    inputs : sequence of torch.Tensor
        Tensors on the device that the code reads; a replay copies new values into them. In Python
        they are the graph's inputs ``input0``, ``input1`` and so on.
    warmup : int
        Runs before the capture; they create what only a first run creates, such as an optimizer's
        state.
    restart : bool
        Restart the kernel in lazy mode if another mode is loaded. Variables are lost.

    Returns
    -------
    CapturedGraph
        ``outputs["result"]`` is the result of the function.

    Raises
    ------
    HPUError
        The process is not in lazy mode, an input is not a tensor on the device, or ``warmup`` is
        negative.
    """
    from hpu_magic.runtime.execution.mode import in_lazy_mode
    from hpu_magic.runtime.graphs.capture import captured

    return in_lazy_mode(lambda: captured(function, name, tuple(inputs), warmup), restart=restart)


def replay(name: str, *, number: int = 1, **inputs: Any) -> ReplayReport:
    """Replay a captured graph with the current values of its inputs.

    Parameters
    ----------
    name : str
        The graph.
    number : int
        How many times to replay it.
    **inputs : torch.Tensor
        New values by the name of the input, with the captured shape, dtype and device.

    Raises
    ------
    HPUError
        There is no such graph or input, or an input has another shape, dtype or device.
    """
    from hpu_magic.runtime.graphs.graphs import find

    return find(name).replay(number, inputs)


def graphs(*, drop: str | None = None) -> GraphList:
    """Return the captured graphs, and the wrapped models with the shapes of their calls.

    Parameters
    ----------
    drop : str, optional
        Delete this graph first, which frees its memory.

    Raises
    ------
    HPUError
        There is no graph to delete with this name.
    """
    from hpu_magic.runtime.graphs import graphs

    if drop is not None:
        graphs.drop(drop)
    return graphs.listed()


def wrap(
    model: Model,
    *,
    train: bool = False,
    infer: bool = False,
    inputs: Inputs | None = None,
    max_graphs: int | None = None,
    restart: bool = False,
) -> WrapReport:
    """Wrap a model so that it replays HPU Graphs, one for each shape, by the vendor's wrapper.

    Needs lazy mode. A model of transformers keeps ``generate``, which then uses a static cache.

    Parameters
    ----------
    model : torch.nn.Module
        A module on the device; it is changed in place.
    train : bool
        Wrap for training: forward and backward pass.
    infer : bool
        Wrap for inference: forward pass without gradients. Without ``train`` and ``infer``,
        ``model.training`` decides.
    inputs : torch.Tensor or sequence of torch.Tensor
        Inputs to capture a graph with now. For training, other shapes are then refused.
    max_graphs : int, optional
        The largest number of graphs to keep; without it, 10 for training and no limit for
        inference.
    restart : bool
        Restart the kernel in lazy mode if another mode is loaded. Variables are lost.

    Raises
    ------
    HPUError
        The process is not in lazy mode; ``model`` is not a module, is not on the device or is
        wrapped already; or an option does not fit.
    """
    from hpu_magic.errors import HPUError
    from hpu_magic.runtime.execution.mode import in_lazy_mode
    from hpu_magic.runtime.graphs.wrapping import wrapped

    if train and infer:
        raise HPUError("A model is wrapped for training or for inference, not both: use one.")
    for_training = train or (False if infer else None)
    return in_lazy_mode(
        lambda: wrapped(model, train=for_training, sample=inputs, max_graphs=max_graphs),
        restart=restart,
    )
