"""Keep the extension's messages from counting as kernel activity."""

from __future__ import annotations

from typing import Any

MESSAGE_TYPES = tuple(
    f"hpu_magic_{topic}_{kind}"
    for topic in ("status", "mode", "stop", "outputs")
    for kind in ("request", "reply")
)


def leave_untracked(server: Any) -> None:
    """Make kernels count as idle while they only answer messages from the extension.

    If these messages counted as activity, the kernels of open notebooks would never be culled. A
    running cell would also appear to have finished, because ipykernel reports a busy and an idle
    status for each request. The server passes this setting on to its JupyterLab pages.
    """
    tracked = getattr(server.kernel_manager, "untracked_message_types", None)
    if tracked is None:  # this kernel manager does not track activity
        return
    untracked = [*tracked, *(kind for kind in MESSAGE_TYPES if kind not in tracked)]
    server.kernel_manager.untracked_message_types = untracked
    page = server.web_app.settings.setdefault("page_config_data", {})
    page["untracked_message_types"] = untracked
