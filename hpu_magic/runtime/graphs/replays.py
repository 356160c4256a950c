"""Count graph replays, for which the vendor provides neither an event nor a metric."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

# In the vendor's package, each method may have its own implementation; in the simulator, replayV2
# and replayV3 call replay.
_METHODS = ("replay", "replayV2", "replayV3")


class _State:
    __slots__ = ("replaying",)

    def __init__(self) -> None:
        self.replaying = False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.state = _State()


class ReplayCounter:
    """Counts the replays in this process while at least one observer is open.

    From the first `open` to the last `close`, the replay methods of ``torch.hpu.HPUGraph`` are
    replaced by wrappers. The wrappers do not count replays that raised an error, replays in a block
    that itself imports the vendor's package, or calls to a method that was looked up earlier, as in
    ``again = graph.replay``.
    """

    def __init__(self) -> None:
        self.total = 0
        self._observers = 0
        self._lock = threading.Lock()
        self._thread = _Thread()
        self._graph: Any = None
        self._originals: dict[str, Any] = {}
        self._counting: dict[str, Any] = {}

    def open(self) -> None:
        """Start counting if ``torch.hpu.HPUGraph`` exists and can be modified."""
        with self._lock:
            self._observers += 1
            if not self._counting:
                self._replace()

    def close(self) -> None:
        """Undo one call to `open`; the last call restores the class."""
        with self._lock:
            self._observers -= 1
            if not self._observers:
                self._restore()

    def _replace(self) -> None:
        # Some of the vendor's releases do not provide HPUGraph in eager mode.
        hpu = getattr(sys.modules.get("torch"), "hpu", None)
        self._graph = getattr(hpu, "HPUGraph", None)
        for name in _METHODS:
            method = getattr(self._graph, name, None)
            if method is None:
                continue
            counting = self._counted(method)
            original = vars(self._graph).get(name)
            try:
                setattr(self._graph, name, counting)
            except (AttributeError, TypeError):  # an immutable class of an extension module
                continue
            self._originals[name], self._counting[name] = original, counting

    def _restore(self) -> None:
        for name, original in self._originals.items():
            if vars(self._graph).get(name) is not self._counting[name]:
                continue  # other code has replaced the method
            if original is None:  # inherited
                delattr(self._graph, name)
            else:
                setattr(self._graph, name, original)
        self._originals.clear()
        self._counting.clear()

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        thread, lock = self._thread, self._lock

        @functools.wraps(method)
        def counted(*args: Any, **kwargs: Any) -> Any:
            state = thread.state  # the state is looked up once, because thread-local access is slow
            if state.replaying:  # called by another replay method
                return method(*args, **kwargs)
            state.replaying = True
            try:
                result = method(*args, **kwargs)
            finally:
                state.replaying = False
            with lock:
                self.total += 1
            return result

        return counted


counter = ReplayCounter()
