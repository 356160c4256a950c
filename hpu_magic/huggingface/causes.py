"""Explain errors from Hugging Face libraries in one sentence with the cause and the fix."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpu_magic.errors import chain
from hpu_magic.requirements import LIBRARIES, conflicts


def explain(error: BaseException) -> str | None:
    """Return the cause and fix of an error, or of an error that led to it; None if unknown."""
    for each in chain(error):
        for cause in _CAUSES:
            if cause.matches(each):
                return cause.sentence
    return _conflict(error)


@dataclass(frozen=True)
class _Cause:
    """A predicate that matches errors, and the explanation of those errors."""

    matches: Callable[[BaseException], bool]
    sentence: str


def _of_hub(name: str) -> Callable[[BaseException], bool]:
    """Return a predicate that checks whether an error is an instance of a huggingface_hub class."""
    return lambda error: _is_of(error, "huggingface_hub", name)


def _not_reached(error: BaseException) -> bool:
    """Return whether a request to the Hub failed."""
    if _is_of(error, "huggingface_hub", "LocalEntryNotFoundError"):
        # This error is raised after a failed request, but also if no request was made.
        failed = _of_hub("HfHubHTTPError")
        return any(_no_answer(each) or failed(each) for each in chain(error))
    requested = any(name.startswith("huggingface_hub.") for name in _modules(error))
    return requested and _no_answer(error)


def _no_answer(error: BaseException) -> bool:
    return _is_of(error, "httpx", "TransportError") or _is_of(
        error, "requests", "ConnectionError", "Timeout"
    )


def _says(kind: type[BaseException], *words: str) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kind) and any(text in str(error) for text in words)


def _second_card(error: BaseException) -> bool:
    return _says(RuntimeError, "habana active device: 0 != ")(error) and any(
        name.startswith(("transformers.", "accelerate.", "diffusers.")) for name in _modules(error)
    )


_OFFLINE = (
    "Downloads are disabled (HF_HUB_OFFLINE=1 or local_files_only=True), and some files are not in "
    "the cache: enable downloads and restart the kernel, or pass the path to a local folder that "
    "contains the files."
)

# The first match wins, so specific errors come before general ones.
_CAUSES = (
    _Cause(
        _of_hub("GatedRepoError"),
        "This repository is gated: accept its conditions on the Hub, log in with "
        "huggingface_hub.login() or HF_TOKEN, and run the cell again.",
    ),
    _Cause(
        _of_hub("RepositoryNotFoundError"),
        "The Hub has no repository with this name, or it is private: use owner/name, or log in "
        "with huggingface_hub.login() or HF_TOKEN.",
    ),
    _Cause(
        _of_hub("RevisionNotFoundError"),
        "The repository does not have this revision: omit revision, or pass an existing branch, "
        "tag or commit.",
    ),
    _Cause(
        _not_reached,
        "Could not reach the Hub: check your network connection and proxy settings (HTTPS_PROXY), "
        "set HF_ENDPOINT to a mirror, or pass the path to a local folder that contains the files.",
    ),
    _Cause(_of_hub("OfflineModeIsEnabled"), _OFFLINE),
    _Cause(_of_hub("LocalEntryNotFoundError"), _OFFLINE),
    _Cause(
        _of_hub("EntryNotFoundError"),
        "The repository exists but does not have this file: check the list of files on the Hub.",
    ),
    _Cause(
        _of_hub("HFValidationError"),
        "This is neither a local folder nor a repository name on the Hub: correct the path, or use "
        "owner/name.",
    ),
    _Cause(
        _second_card,
        "A process has only one card, hpu:0, but device_map contains another: use "
        'device_map="hpu", or "auto" to keep layers that do not fit on the card on the host, and '
        "start one process per card (accelerate launch, torchrun).",
    ),
    _Cause(
        _says(
            Exception, "Cannot copy out of meta tensor", "device meta is not on the expected device"
        ),
        "The model is on the meta device, so its weights have no values: create it outside of "
        'torch.device("meta"), load it with from_pretrained, or call to_empty(device="hpu") and '
        "load_state_dict.",
    ),
)


def _conflict(error: BaseException) -> str | None:
    """Return a version conflict between libraries that may have caused the error."""
    imported = [name for each in chain(error) for name in _suspects(each)]
    packages = {
        package
        for package in LIBRARIES
        if any(f"{name}.".startswith(f"{package}.") for name in imported)
    }
    known = conflicts([LIBRARIES[name] for name in LIBRARIES if name in packages])
    return str(known[0]) if known else None


def _suspects(error: BaseException) -> Iterator[str]:
    """Yield the modules that may expect a different version of a library."""
    if isinstance(error, ImportError):
        yield from _modules(error)
        yield error.name or ""
    elif isinstance(error, (AttributeError, TypeError)):
        yield from _modules(error)[-1:]


def _modules(error: BaseException) -> list[str]:
    frames = traceback.walk_tb(error.__traceback__)
    return [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]


def _is_of(error: BaseException, library: str, *names: str) -> bool:
    return any(
        kind.__name__ in names and kind.__module__.startswith(library)
        for kind in type(error).__mro__
    )
