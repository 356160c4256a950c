"""Capture and replay of HPU Graphs."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence

from habana_frameworks.torch.hpu._compiler_options import disable_dynamic_shape
from habana_frameworks.torch.hpu.graphs._inputs import fill
from habana_frameworks.torch.hpu.streams import Stream, StreamContext, current_stream
from habana_frameworks.torch.utils.internal import is_lazy

import torch
from hpu_magic.simulator import engine


def require_lazy() -> None:
    """Raise RuntimeError in eager mode."""
    if not is_lazy():
        raise RuntimeError(
            "HPU Graphs are only supported in lazy mode; set PT_HPU_LAZY_MODE=1 before the first "
            "import of habana_frameworks.torch."
        )


def is_current_stream_capturing() -> bool:
    """Return whether a capture is in progress; always False in eager mode."""
    return is_lazy() and bool(engine.load().is_capturing())


class HPUGraph:
    """A captured sequence of operations, which `replay` executes again on the same tensors.

    Calls in the wrong order raise an error. A call to `capture_end` without a capture, which a real
    card ignores, also raises an error. The constructor raises RuntimeError in eager mode.
    """

    _may_be_empty = False

    def __init__(self) -> None:
        require_lazy()
        self._native = engine.load().Graph()
        self._started = False
        self._stream = 0
        self._inputs: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] | None = None
        self._warned = False

    def capture_begin(self, dry_run: bool = False) -> None:
        """Start capturing the operations of all threads, and disable dynamic shapes.

        With `dry_run`, the operations are executed in the first replay instead of during the
        capture. Raises RuntimeError if a capture is in progress.
        """
        # Otherwise, a replay would not repeat weight casts that autocast has already cached.
        torch.clear_autocast_cache()
        self._native.capture_begin(dry_run)
        self._started = True
        disable_dynamic_shape()
        self._stream = current_stream().stream_id
        self._inputs, self._outputs = [], None

    def capture_end(self) -> None:
        """End the capture. A capture without operations is valid; see `replay`.

        Raises RuntimeError if no capture of this graph is in progress, if an unsupported operation
        has ended the capture, or if the capture started on another stream.
        """
        if not self._started:
            raise RuntimeError(
                "GRAPH:: No capture in progress; call capture_begin() of this graph before its "
                "capture_end()."
            )
        if not self._native.is_capturing():
            self.abandon()
            raise RuntimeError(
                "GRAPH:: The capture has already failed because of an unsupported operation; "
                "remove the operation, or do not catch its error, and capture again."
            )
        if current_stream().stream_id != self._stream:
            raise RuntimeError("GRAPH:: Capture must end on the same stream it began on.")
        self._started = False
        self._native.capture_end()
        torch.clear_autocast_cache()

    def is_capturing(self) -> bool:
        """Return whether a capture of this graph is in progress."""
        return bool(self._native.is_capturing())

    def replay(self, asynchronous: bool = False) -> None:
        """Execute the captured operations on the captured tensors.

        If no operations were captured, the first replay shows a warning. `asynchronous` has no
        effect in the simulator; on a card, it makes the call return before the host has launched
        all operations. Raises RuntimeError if a capture is in progress.
        """
        if (
            self._native.is_empty()
            and not (self._may_be_empty or self._warned)
            and not is_current_stream_capturing()
        ):
            self._warned = True
            warnings.warn(
                "GRAPH:: Nothing to replay; run operations on device tensors between "
                "capture_begin() and capture_end() of this graph.",
                RuntimeWarning,
                stacklevel=2,
            )
        self._native.replay()

    def replayV2(
        self,
        static_tlist: Sequence[torch.Tensor],
        tlist: Sequence[torch.Tensor],
        asynchronous: bool = False,
    ) -> None:
        """Copy each tensor in `tlist` to its counterpart in `static_tlist`, then replay.

        Raises RuntimeError, without copying anything, if the lists have different lengths, if two
        tensors differ in shape or dtype, or if a tensor in `tlist` is not on the device.
        """
        fill(static_tlist, tlist)
        self.replay(asynchronous)

    def replayV3(self, tlist: Sequence[torch.Tensor], asynchronous: bool = False) -> None:
        """Copy `tlist` to the tensors set by `mark_user_inputs`, then replay; see `replayV2`."""
        self.replayV2(self._inputs, tlist, asynchronous)

    def mark_user_inputs(self, inputs: Sequence[torch.Tensor]) -> None:
        """Set the tensors that `replayV3` fills; raise RuntimeError outside a capture."""
        if not is_current_stream_capturing():
            raise RuntimeError("GRAPH:: mark_user_inputs must be while capturing in progress")
        self._inputs = list(inputs)

    def mark_user_outputs(self, outputs: Sequence[torch.Tensor]) -> None:
        """Set the output tensors of the graph; can only be called once per capture."""
        if self._outputs is not None:
            raise RuntimeError(
                "Error:mark_user_outputs is called more than once for the same graph?"
            )
        self._outputs = list(outputs)

    def get_user_input_match_indices(self) -> list[int]:
        """Return the indices of the inputs that the graph uses, which are all inputs."""
        return list(range(len(self._inputs)))

    def clear_inputs(self) -> None:
        """Remove the tensors set by `mark_user_inputs`; `replayV3` then accepts no inputs."""
        self._inputs = []

    def reset(self) -> None:
        """Delete the captured operations and free their memory."""
        self._native.reset()
        self._inputs, self._outputs = [], None

    def abandon(self) -> None:
        """End a failed capture, and discard it."""
        self._started = False
        try:
            self._native.abandon()
        except Exception:  # noqa: BLE001, S110 - the caller already handles the first error
            pass
        finally:
            torch.clear_autocast_cache()
            self.reset()


class WrappedGraph(HPUGraph):
    """The graph of a user's function; it may be empty."""

    _may_be_empty = True

    def free_intermediates(
        self, kept: Sequence[torch.Tensor], backward: WrappedGraph | None = None
    ) -> None:
        """Free intermediate results after each replay, except the tensors in `kept`.

        `backward` is the graph that later reads some of these results, and then frees them.
        """
        self._native.free_intermediates(list(kept), None if backward is None else backward._native)

    def free_for_backward(self) -> None:
        """Free the results that are kept for the backward graph, if it will not run."""
        self._native.free_for_backward()


class graph:
    """Context manager that captures the operations of the ``with`` block into `hpu_graph`.

    `stream` is the stream to capture on, by default a separate stream. For `dry_run`, see
    `HPUGraph.capture_begin`.
    """

    _side_stream: Stream | None = None

    def __init__(
        self, hpu_graph: HPUGraph, stream: torch.Stream | None = None, dry_run: bool = False
    ) -> None:
        require_lazy()
        if stream is None:
            stream = graph._side_stream = graph._side_stream or Stream()
        self.hpu_graph = hpu_graph
        self.dry_run = dry_run
        self._stream = StreamContext(stream)

    def __enter__(self) -> None:
        torch.hpu.synchronize()
        gc.collect()
        # After a capture, a backward pass accumulates into gradients that belong to the capture
        # stream. PyTorch warns about this, but it is safe here because all streams execute
        # sequentially.
        set_warning = getattr(
            torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None
        )
        if set_warning is not None:
            set_warning(False)
        self._stream.__enter__()
        try:
            self.hpu_graph.capture_begin(self.dry_run)
        except BaseException:
            self._stream.__exit__()
            raise

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                self.hpu_graph.capture_end()
        finally:
            try:
                if kind is not None or self.hpu_graph.is_capturing():
                    self.hpu_graph.abandon()
            finally:
                self._stream.__exit__(kind)
