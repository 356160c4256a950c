"""Our questions to kernels are no activity of the user's."""

from __future__ import annotations

from typing import Any

MESSAGE_TYPES = tuple(
    f"hpu_magic_{what}_{kind}"
    for what in ("status", "mode", "stop", "outputs")
    for kind in ("request", "reply")
)


def leave_untracked(server: Any) -> None:
    """Let a kernel that only answers the status bar still count as idle.

    Otherwise no kernel whose notebook is open would ever be culled, and a running cell would
    look finished, as ipykernel reports each answer as busy and idle.

    Parameters
    ----------
    server : ServerApp
        The server; its JupyterLab pages learn of it too.
    """
    tracked = getattr(server.kernel_manager, "untracked_message_types", None)
    if tracked is None:  # a kernel manager that watches no activity
        return
    untracked = [*tracked, *(kind for kind in MESSAGE_TYPES if kind not in tracked)]
    server.kernel_manager.untracked_message_types = untracked
    page = server.web_app.settings.setdefault("page_config_data", {})
    page["untracked_message_types"] = untracked
