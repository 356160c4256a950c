"""Commands for HPU Graphs: capture and replay code, and wrap models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpu_magic.commands.parameters import Inputs, Model, Tensors

if TYPE_CHECKING:
    from hpu_magic.runtime.graphs.graphs import CapturedGraph, GraphList, ReplayReport
    from hpu_magic.runtime.graphs.wrapping import WrapReport


def capture(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    inputs: Tensors = (),
    warmup: int = 1,
    restart: bool = False,
) -> CapturedGraph:
    """Capture ``function(*inputs)`` in an HPU Graph, which can be replayed without Python.

    Requires lazy mode. Captured code cannot read tensor values (``print``, ``.item()``,
    ``.cpu()``).

    Parameters
    ----------
    function : callable
        The code to capture.
    name : str, optional
        Name of the graph; by default, the function's name.
    inputs : torch.Tensor, sequence or dict of torch.Tensor
        Device tensors that the code reads; a replay copies new values into them. In Python, the
        graph's inputs are named ``input0``, ``input1`` and so on, or like the keys of the dict.
    warmup : int
        Number of runs before the capture, to create objects that only the first run creates, such
        as the optimizer state.
    restart : bool
        Restart the kernel in lazy mode if another mode is loaded. Variables are lost.

    Returns
    -------
    CapturedGraph
        ``outputs["result"]`` is the result of the function.

    Raises
    ------
    HPUError
        The process is not in lazy mode, an input is not a device tensor, or ``warmup`` is
        negative.
    """
    from hpu_magic.runtime.execution.mode import in_lazy_mode
    from hpu_magic.runtime.graphs.capture import captured

    return in_lazy_mode(lambda: captured(function, name, inputs, warmup), restart=restart)


def replay(name: str, *, runs: int = 1, **inputs: Any) -> ReplayReport:
    """Replay a captured graph with the current values of its inputs.

    Parameters
    ----------
    name : str
        The graph.
    runs : int
        Number of replays.
    **inputs : torch.Tensor
        New values by input name, with the captured shape, dtype and device.

    Raises
    ------
    HPUError
        The graph or an input is unknown, or an input has a different shape, dtype or device.
    """
    from hpu_magic.runtime.graphs.graphs import find

    return find(name).replay(runs, inputs)


def graphs(*, delete: str | None = None) -> GraphList:
    """Return the captured graphs, and the wrapped models with their input shapes.

    Parameters
    ----------
    delete : str, optional
        Delete this graph first, and free its memory.

    Raises
    ------
    HPUError
        The graph to delete is unknown.
    """
    from hpu_magic.runtime.graphs import graphs

    if delete is None:
        return graphs.listed()
    graphs.drop(delete)
    report = graphs.listed()
    report.remarks.append(f"Graph {delete} is deleted.")
    return report


def wrap(
    model: Model,
    *,
    train: bool | None = None,
    inputs: Inputs = None,
    max_graphs: int | None = None,
    restart: bool = False,
) -> WrapReport:
    """Wrap a model in the vendor's wrapper, which replays one HPU Graph per input shape.

    Requires lazy mode. A transformers model keeps its ``generate`` method, which then uses a static
    KV cache.

    Parameters
    ----------
    model : torch.nn.Module
        A module on the device, which is changed in place.
    train : bool, optional
        Wrap the model for training or, with ``train=False``, for inference; the default is
        ``model.training``.
    inputs : torch.Tensor or sequence of torch.Tensor, optional
        Inputs for which a graph is captured immediately. For training, the model then rejects other
        shapes.
    max_graphs : int, optional
        Maximum number of graphs; the default is 10 for training and no limit for inference.
    restart : bool
        Restart the kernel in lazy mode if another mode is loaded. Variables are lost.

    Raises
    ------
    HPUError
        The process is not in lazy mode; ``model`` is not a module, not on the device or already
        wrapped; or an option is invalid.
    """
    from hpu_magic.runtime.execution.mode import in_lazy_mode
    from hpu_magic.runtime.graphs.wrapping import wrapped

    return in_lazy_mode(
        lambda: wrapped(model, train=train, sample=inputs, max_graphs=max_graphs),
        restart=restart,
    )
