"""Capture code into an HPU Graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.inputs import call_arguments
from hpu_magic.runtime.device.tensors import tensors_in
from hpu_magic.runtime.execution.mode import require_lazy
from hpu_magic.runtime.graphs.capture_errors import CaptureRefusal
from hpu_magic.runtime.graphs.graphs import CapturedGraph, find, register


class Capture:
    """Runs code ``warmup`` times and then captures it; use it as in ``while again(): ...``.

    The warm-up runs create the objects that the code creates only once, such as optimizer state;
    otherwise, each replay would create them again. ``inputs`` are the variables in ``namespace``
    whose tensors the graph reads; later replays copy new values into these tensors. ``keep`` is
    called with the captured graph, which replaces any graph with the same name.

    Raises `HPUError` if the process is not in lazy mode, if an input is not a tensor on the
    device, or if ``warmup`` is negative.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        namespace: MutableMapping[str, Any],
        warmup: int = 1,
        keep: Callable[[CapturedGraph], object] = lambda graph: None,
    ) -> None:
        require_lazy("HPU Graphs")
        if warmup < 0:
            raise HPUError(f"--warmup is {warmup}: use 0 or more.")
        self._torch = device.take()
        if self._torch.hpu.is_current_stream_capturing():
            raise HPUError("A capture is already in progress: end it before starting another one.")
        self._namespace = namespace
        self._warmup = warmup
        self._keep = keep
        self._captured = CapturedGraph(
            name, None, {variable: _device_tensor(variable, namespace) for variable in inputs}
        )
        self._refusal: CaptureRefusal | None = None
        self._done = False
        self._context: Any = None
        self._recorder: Any = None
        self._schedule = self._runs()

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any
    ) -> None:
        if self._context is not None:
            recorder = self._recorder
            try:
                self._stop_recording(kind, error, traceback)
            finally:
                self._captured.graph.reset()
            if isinstance(error, RuntimeError) and recorder.failed is not None:
                self._refusal = CaptureRefusal.of(self._captured.name, recorder.failed, error)

    def again(self) -> bool:
        """Return whether to run the code again."""
        return next(self._schedule, False)

    def summary(self) -> CapturedGraph | CaptureRefusal | None:
        """Return the captured graph, or a report on why the capture was refused."""
        return self._captured if self._done else self._refusal

    def _runs(self) -> Iterator[bool]:
        for _ in range(self._warmup):
            yield True
            device.synchronize()
        device.synchronize()
        before = dict(self._namespace)
        in_use = device.in_use()
        self._start_recording()
        yield True
        captured = self._captured
        captured.operations = self._recorder.operations
        if not captured.operations:
            empty = HPUError(
                f"The code of graph {captured.name} runs nothing on the device, so there is "
                f"nothing to replay: use tensors on hpu."
            )
            self._stop_recording(HPUError, empty, None)
            captured.graph.reset()
            raise empty
        self._stop_recording(None, None, None)
        device.synchronize()
        captured.memory = device.in_use() - in_use
        captured.outputs = {
            name: value
            for name, value in self._namespace.items()
            if not name.startswith("_")
            and value is not before.get(name)
            and any(tensor.device.type == "hpu" for tensor in tensors_in(value))
        }
        register(captured)
        self._keep(captured)
        self._done = True

    def _start_recording(self) -> None:
        hpu = self._torch.hpu
        self._captured.graph = hpu.HPUGraph()
        self._context = hpu.graph(self._captured.graph)
        self._context.__enter__()
        self._recorder = _recorder()
        self._recorder.__enter__()

    def _stop_recording(self, *error: Any) -> None:
        recorder, context = self._recorder, self._context
        self._recorder = self._context = None
        recorder.__exit__(*error)
        context.__exit__(*error)


def captured(
    function: Callable[..., Any], name: str | None, inputs: Any, warmup: int
) -> CapturedGraph:
    """Capture a call to a function; see `hpu_magic.capture`."""
    arguments, named = call_arguments(inputs)
    namespace = {f"input{number}": value for number, value in enumerate(arguments)} | named
    chosen = str(name or getattr(function, "__name__", "graph"))
    capture = Capture(chosen, list(namespace), namespace, warmup)
    with capture:
        while capture.again():
            namespace["result"] = function(*arguments, **named)
    return find(chosen)


def _device_tensor(name: str, namespace: Mapping[str, Any]) -> Any:
    import torch

    if name not in namespace:
        fix = suggestion(name, namespace) or "define it first."
        raise HPUError(f"Unknown input variable {name!r}: {fix}")
    value = namespace[name]
    if not isinstance(value, torch.Tensor):
        raise HPUError(
            f"Input {name!r} is a {type(value).__name__}, but graph inputs must be tensors: pass "
            f"a tensor."
        )
    if value.device.type != "hpu":
        raise HPUError(f"Input {name!r} is on {value.device}: type %hpu_to {name} first.")
    return value


# These operators create a device tensor without computing anything on the device.
_CREATING = ("_to_copy", "empty")


def _recorder() -> Any:
    """Return a dispatch mode that counts operators and records the one that failed."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operations: Counter[str] = Counter()
            self.failed: Any = None

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            __tracebackhide__ = True  # makes IPython show only the user's lines
            try:
                result = func(*args, **(kwargs or {}))
            except RuntimeError:
                self.failed = func
                raise
            name = str(func.name()).removeprefix("aten::")
            arguments = [args, list((kwargs or {}).values())]
            involved = [arguments] if name.startswith(_CREATING) else [arguments, result]
            if not func.is_view and any(
                tensor.device.type == "hpu" for tensor in tensors_in(involved)
            ):
                self.operations[name] += 1
            return result

    return Recorder()
