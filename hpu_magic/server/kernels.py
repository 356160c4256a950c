"""The server's kernels that hold cards, and their notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from jupyter_core.utils import ensure_async

from hpu_magic.server import control

# Prefix of the names of vLLM's processes, which may be busy while the kernel is idle.
_SERVER = "VLLM::"


class Kernels:
    """The kernels and sessions of this server, as listed by the server's managers."""

    def __init__(self, kernel_manager: Any, session_manager: Any) -> None:
        self._kernels = kernel_manager
        self._sessions = session_manager

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._kernels

    async def join(self, record: dict[str, Any]) -> None:
        """Replace the ``ancestors`` of each holder in a record with its ``kernel``.

        A kernel has the keys ``id``, ``name``, ``state`` and ``notebook``. The notebook is either
        None or has the keys ``path``, ``name`` and ``type``. The kernel is None unless the holder
        is a kernel of this server or a descendant of such a kernel. If a kernel does not publish
        its idle time, the last activity known to the server is used instead. Only fits in kernels
        of this server can be stopped.
        """
        pids = self._pids()
        found: list[tuple[dict[str, Any], str]] = []
        for card in record["cards"]:
            for holder in card["holders"]:
                family = [holder["pid"], *holder.pop("ancestors")]
                kernel_id = next((pids[pid] for pid in family if pid in pids), None)
                holder["kernel"] = None
                if kernel_id is not None:
                    found.append((holder, kernel_id))
                elif holder["fit"]:
                    holder["fit"]["stoppable"] = False
        if not found:
            return
        sessions = {
            session["kernel"]["id"]: session
            for session in await ensure_async(self._sessions.list_sessions())
        }
        for holder, kernel_id in found:
            if kernel_id in self:  # the kernel may have ended while the sessions were being listed
                holder["kernel"] = self._describe(kernel_id, sessions.get(kernel_id))
                if holder["idle"] is None and not holder["command"].startswith(_SERVER):
                    holder["idle"] = self._idle(kernel_id)

    async def shut_down(self, kernel_id: str) -> None:
        """Shut down a kernel; like Jupyter, kill it if it does not respond."""
        await ensure_async(self._kernels.shutdown_kernel(kernel_id))

    async def stop_fit(self, kernel_id: str, pid: int) -> str | None:
        """Stop a kernel's fit in the process `pid`, or return why it cannot be stopped.

        Raises control.NoAnswerError if the kernel hangs.
        """
        kernel = self._kernels.get_kernel(kernel_id)
        reply = await control.request(kernel, "stop", {"pid": pid})
        return None if reply.get("status") == "ok" else str(reply.get("message", ""))

    def _pids(self) -> dict[int, str]:
        pids = {}
        for kernel_id in self._kernels.list_kernel_ids():
            # Kernels that are still starting, or that run on another machine, have no PID.
            provisioner = getattr(self._kernels.get_kernel(kernel_id), "provisioner", None)
            pid = getattr(provisioner, "pid", None)
            if pid:
                pids[pid] = kernel_id
        return pids

    def _idle(self, kernel_id: str) -> float | None:
        """Return the seconds since a kernel's last activity: 0 if busy, None if unknown."""
        kernel = self._kernels.get_kernel(kernel_id)
        if getattr(kernel, "execution_state", None) != "idle":
            return 0.0 if getattr(kernel, "execution_state", None) == "busy" else None
        since = getattr(kernel, "last_activity", None)
        if since is None:
            return None
        return max(0.1, round((datetime.now(timezone.utc) - since).total_seconds(), 1))

    def _describe(self, kernel_id: str, session: Mapping[str, Any] | None) -> dict[str, Any]:
        kernel = self._kernels.kernel_model(kernel_id)
        return {
            "id": kernel_id,
            "name": kernel["name"],
            "state": kernel["execution_state"],
            "notebook": session and {key: session[key] for key in ("path", "name", "type")},
        }
