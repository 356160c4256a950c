"""Capture and replay: operations recorded once, run again without Python."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence

from habana_frameworks.torch.hpu.graphs._inputs import fill
from habana_frameworks.torch.hpu.streams import Stream, StreamContext, current_stream
from habana_frameworks.torch.hpu.toggles import disable_dynamic_shape
from habana_frameworks.torch.utils.internal import is_lazy

import torch
from hpu_magic.simulator import engine


def require_lazy() -> None:
    """Refuse HPU Graphs in eager mode.

    Raises
    ------
    RuntimeError
        This process has loaded eager mode.
    """
    if not is_lazy():
        raise RuntimeError(
            "HPU Graphs are for lazy mode only: set PT_HPU_LAZY_MODE=1 before the first import of "
            "habana_frameworks.torch."
        )


def is_current_stream_capturing() -> bool:
    """Tell whether operations are being captured; never in eager mode."""
    return is_lazy() and bool(engine.load().is_capturing())


class HPUGraph:
    """Operations of one capture, which `replay` runs again on the same tensors.

    A mistake in the order of calls is refused here with an error, also `capture_end` without a
    capture, which a card ignores.

    Raises
    ------
    RuntimeError
        This process has loaded eager mode.
    """

    _may_be_empty = False

    def __init__(self) -> None:
        require_lazy()
        self._native = engine.load().Graph()
        self._begun = False
        self._stream = 0
        self._inputs: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] | None = None
        self._warned = False

    def capture_begin(self, dry_run: bool = False) -> None:
        """Start to capture what runs on the device, by any thread; switches dynamic shapes off.

        Parameters
        ----------
        dry_run : bool
            Only record: the operations run at the first replay and not before.

        Raises
        ------
        RuntimeError
            A capture is in progress.
        """
        # A weight that autocast converted outside the graph would never be converted again.
        torch.clear_autocast_cache()
        self._native.capture_begin(dry_run)
        self._begun = True
        disable_dynamic_shape()
        self._stream = current_stream().stream_id
        self._inputs, self._outputs = [], None

    def capture_end(self) -> None:
        """End the capture. A capture without operations is valid; see `replay`.

        Raises
        ------
        RuntimeError
            This graph's capture has not begun or was ended by what it refused, or the current
            stream is not the one on which it began.
        """
        if not self._begun:
            raise RuntimeError(
                "GRAPH:: No capture in progress: call capture_begin() of this graph before its "
                "capture_end()."
            )
        if not self._native.is_capturing():
            self.abandon()
            raise RuntimeError(
                "GRAPH:: The capture has ended already, with an error that named what it refuses: "
                "leave that out, or let the error end the code, and capture again."
            )
        if current_stream().stream_id != self._stream:
            raise RuntimeError("GRAPH:: Capture must end on the same stream it began on.")
        self._begun = False
        self._native.capture_end()
        torch.clear_autocast_cache()

    def is_capturing(self) -> bool:
        """Tell whether this graph's capture is under way."""
        return bool(self._native.is_capturing())

    def replay(self, asynchronous: bool = False) -> None:
        """Run the captured operations again, on the captured tensors.

        If nothing was captured, it does nothing, and the first such replay of a graph warns.

        Parameters
        ----------
        asynchronous : bool
            Return before the host has launched everything; here launching is running.

        Raises
        ------
        RuntimeError
            A capture is in progress.
        """
        if (
            self._native.is_empty()
            and not (self._may_be_empty or self._warned)
            and not is_current_stream_capturing()
        ):
            self._warned = True
            warnings.warn(
                "GRAPH:: Nothing to replay: compute with tensors that are on the device between "
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
        """Copy each tensor of `tlist` into its counterpart in `static_tlist`, then replay.

        Raises
        ------
        RuntimeError
            The lists differ in length, two tensors differ in shape or dtype, or one of
            `tlist` is not on the device; nothing is copied or replayed then.
        """
        fill(static_tlist, tlist)
        self.replay(asynchronous)

    def replayV3(self, tlist: Sequence[torch.Tensor], asynchronous: bool = False) -> None:
        """Copy `tlist` into the tensors of `mark_user_inputs`, then replay.

        Raises
        ------
        RuntimeError
            The lists differ in length, two tensors differ in shape or dtype, or one of
            `tlist` is not on the device; nothing is copied or replayed then.
        """
        self.replayV2(self._inputs, tlist, asynchronous)

    def mark_user_inputs(self, inputs: Sequence[torch.Tensor]) -> None:
        """Name the tensors that `replayV3` fills.

        Raises
        ------
        RuntimeError
            No capture is in progress.
        """
        if not is_current_stream_capturing():
            raise RuntimeError("GRAPH:: mark_user_inputs must be while capturing in progress")
        self._inputs = list(inputs)

    def mark_user_outputs(self, outputs: Sequence[torch.Tensor]) -> None:
        """Name the tensors that each replay overwrites for the user.

        Raises
        ------
        RuntimeError
            They have been named for this capture.
        """
        if self._outputs is not None:
            raise RuntimeError(
                "Error:mark_user_outputs is called more than once for the same graph?"
            )
        self._outputs = list(outputs)

    def get_user_input_match_indices(self) -> list[int]:
        """Return the places in `replayV3`'s list that the graph takes: all that were marked."""
        return list(range(len(self._inputs)))

    def clear_inputs(self) -> None:
        """Forget the tensors of `mark_user_inputs`; `replayV3` then takes none."""
        self._inputs = []

    def reset(self) -> None:
        """Forget the capture and free what only it holds."""
        self._native.reset()
        self._inputs, self._outputs = [], None

    def abandon(self) -> None:
        """End a capture that failed, and forget it."""
        self._begun = False
        try:
            self._native.abandon()
        except Exception:  # noqa: BLE001, S110 - of an operation; the failure before it is told
            pass
        finally:
            torch.clear_autocast_cache()
            self.reset()


class WrappedGraph(HPUGraph):
    """A graph of a function that somebody else wrote, which may only hand its inputs on."""

    _may_be_empty = True

    def free_intermediates(
        self, kept: Sequence[torch.Tensor], backward: WrappedGraph | None = None
    ) -> None:
        """Hold intermediate results during a replay only, from the first one on.

        Parameters
        ----------
        kept : sequence of Tensor
            What the graphs take and return.
        backward : WrappedGraph, optional
            Graph that reads some of them later; from then on it frees them, and its own.
        """
        self._native.free_intermediates(list(kept), None if backward is None else backward._native)

    def free_for_backward(self) -> None:
        """Free what the backward graph would, as it is not going to run."""
        self._native.free_for_backward()


class graph:
    """Context manager that captures its block into `hpu_graph`.

    Parameters
    ----------
    hpu_graph : HPUGraph
    stream : Stream, optional
        Stream to capture on; by default one of its own.
    dry_run : bool
        See `HPUGraph.capture_begin`.
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
        # A backward pass after a capture meets gradients made on the capture's stream, which is
        # no mistake here: the work of all streams runs in one order.
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
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
