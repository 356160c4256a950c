"""Excludes the extension's messages to kernels from their activity."""

from __future__ import annotations

from typing import Any

MESSAGE_TYPES = tuple(
    f"hpu_magic_{topic}_{kind}"
    for topic in ("status", "mode", "stop", "outputs")
    for kind in ("request", "reply")
)


def leave_untracked(server: Any) -> None:
    """Count a kernel that only answers the status bar as idle.

    Otherwise, kernels of open notebooks would never be culled, and a running cell would look
    finished, because ipykernel reports each answer as busy and idle.

    Parameters
    ----------
    server : ServerApp
        The server, which also passes the setting to its JupyterLab pages.
    """
    tracked = getattr(server.kernel_manager, "untracked_message_types", None)
    if tracked is None:  # a kernel manager that does not track activity
        return
    untracked = [*tracked, *(kind for kind in MESSAGE_TYPES if kind not in tracked)]
    server.kernel_manager.untracked_message_types = untracked
    page = server.web_app.settings.setdefault("page_config_data", {})
    page["untracked_message_types"] = untracked
