"""Errors of the Hugging Face libraries in one sentence: what was wrong, and what to do."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpu_magic.errors import chain
from hpu_magic.requirements import LIBRARIES, conflicts


def explain(error: BaseException) -> str | None:
    """Return what was wrong and what to do, None where that is not known.

    Parameters
    ----------
    error : BaseException
        What a cell ended with; the errors that led to it are looked at too.
    """
    for one in chain(error):
        for cause in _CAUSES:
            if cause.led_to(one):
                return cause.sentence
    return _conflict(error)


@dataclass(frozen=True)
class _Cause:
    """How an error is known, and what there is to say."""

    led_to: Callable[[BaseException], bool]
    sentence: str


def _of_hub(name: str) -> Callable[[BaseException], bool]:
    """Return what tells whether an error is of a class of huggingface_hub."""
    return lambda error: _is_of(error, "huggingface_hub", name)


def _not_reached(error: BaseException) -> bool:
    """Tell whether the hub was asked and gave no answer."""
    if _is_of(error, "huggingface_hub", "LocalEntryNotFoundError"):
        # What led to it is the attempt that failed, or nothing of the kind.
        failed = _of_hub("HfHubHTTPError")
        return any(_no_answer(one) or failed(one) for one in chain(error))
    asked = any(name.startswith("huggingface_hub.") for name in _modules(error))
    return asked and _no_answer(error)


def _no_answer(error: BaseException) -> bool:
    return _is_of(error, "httpx", "TransportError") or _is_of(
        error, "requests", "ConnectionError", "Timeout"
    )


def _says(kind: type[BaseException], *words: str) -> Callable[[BaseException], bool]:
    return lambda error: isinstance(error, kind) and any(one in str(error) for one in words)


def _second_card(error: BaseException) -> bool:
    return _says(RuntimeError, "habana active device: 0 != ")(error) and any(
        name.startswith(("transformers.", "accelerate.", "diffusers.")) for name in _modules(error)
    )


_OFFLINE = (
    "Nothing is downloaded here (HF_HUB_OFFLINE=1, or local_files_only=True), and not all that is "
    "asked for is in the cache: allow it and restart the kernel, or give the path of a folder "
    "that has the files."
)

# The first that fits holds, so what is special comes before what is general.
_CAUSES = (
    _Cause(
        _of_hub("GatedRepoError"),
        "The download is gated: accept its conditions on its page at the hub, then log in by "
        "huggingface_hub.login() or the variable HF_TOKEN, and run the cell again.",
    ),
    _Cause(
        _of_hub("RepositoryNotFoundError"),
        "The hub shows no repository of this name to you: write it as owner/name, and log in by "
        "huggingface_hub.login() or the variable HF_TOKEN if it is private.",
    ),
    _Cause(
        _of_hub("RevisionNotFoundError"),
        "The repository has no such revision: leave revision out, or give a branch, a tag or a "
        "commit of it.",
    ),
    _Cause(
        _not_reached,
        "The hub could not be reached: see to the network or its proxy (HTTPS_PROXY), name a "
        "mirror by HF_ENDPOINT, or give the path of a folder that has the files.",
    ),
    _Cause(_of_hub("OfflineModeIsEnabled"), _OFFLINE),
    _Cause(_of_hub("LocalEntryNotFoundError"), _OFFLINE),
    _Cause(
        _of_hub("EntryNotFoundError"),
        "The repository is there and has no such file: look at its files on its page at the hub.",
    ),
    _Cause(
        _of_hub("HFValidationError"),
        "That is neither a folder here nor a name at the hub: correct the path, or write "
        "owner/name.",
    ),
    _Cause(
        _second_card,
        'A process has one card, hpu:0, and device_map names another: write device_map="hpu", or '
        '"auto" where the host shall take what the card cannot, and give each further card a '
        "process of its own (accelerate launch, torchrun).",
    ),
    _Cause(
        _says(
            Exception, "Cannot copy out of meta tensor", "device meta is not on the expected device"
        ),
        "The model is on meta, where weights have shapes and no values: make it outside of "
        'torch.device("meta"), load it by from_pretrained, or give it memory by '
        'to_empty(device="hpu") and values by load_state_dict.',
    ),
)


def _conflict(error: BaseException) -> str | None:
    """Return what a library says that it works with, if the error may come of another version."""
    imported = [name for one in chain(error) for name in _at_fault(one)]
    packages = {
        package
        for package in LIBRARIES
        if any(f"{name}.".startswith(f"{package}.") for name in imported)
    }
    found = conflicts([LIBRARIES[one] for one in LIBRARIES if one in packages])
    return str(found[0]) if found else None


def _at_fault(error: BaseException) -> Iterator[str]:
    """Yield the modules in which a name, an argument or a module may have been another's."""
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
        one.__name__ in names and one.__module__.startswith(library) for one in type(error).__mro__
    )
