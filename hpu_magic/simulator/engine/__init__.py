"""The native engine, which is loaded from a wheel or a cache, or compiled on first use.

The engine is looked up in the system cache (filled by ``hpu-magic build --dir``), the user's cache,
and the wheels installed by pip, in this order. A newly compiled engine is stored in the user's
cache, or in a private temporary directory if that cache cannot be used.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from hpu_magic.simulator.engine import cache, key, wheels
from hpu_magic.simulator.engine.cache import distrust
from hpu_magic.simulator.engine.compiler import BuildError, build
from hpu_magic.simulator.engine.sources import NAME, SOURCES

__all__ = ["NAME", "SOURCES", "BuildError", "build", "compiled", "distrust", "install", "load"]

_engine: ModuleType | None = None
_loading = threading.Lock()


def _renew_lock() -> None:
    global _loading
    _loading = threading.Lock()


# Another thread may have been loading the engine when the process was forked.
os.register_at_fork(after_in_child=_renew_lock)


def load() -> ModuleType:
    """Return the engine. Compile it if no compiled engine is available.

    Raises
    ------
    BuildError
        A compiler or ninja is missing, or the compilation failed.
    """
    global _engine
    import torch  # noqa: F401 - the first import loads the bridge, which calls this function

    with _loading:
        if _engine is None:
            _engine = _loaded()
        return _engine


def _loaded() -> ModuleType:
    library = compiled()
    try:
        return _import(library)
    except ImportError as failed:
        if not wheels.is_installed(library):
            raise
        # For example, the C library may be older than the one the wheel was built for.
        _say(f"the installed engine {library} cannot be loaded ({failed}).")
        return _import(_built(cache.entry()))


def compiled() -> Path:
    """Return the path of an engine compiled for this torch, Python, C library and source.

    Raises
    ------
    BuildError
        A compiler or ninja is missing, or the compilation failed.
    """
    entry = cache.entry()
    places = [cache.system_directory(), cache.user_directory()]
    for place in places:
        library = place / entry
        if os.path.exists(library):  # False if the user may not read the folder
            if (why := cache.distrust(library)) is None:
                return library
            _say(f"ignoring the compiled engine {library}: {why}.")
    try:
        installed = wheels.installed(key.here())
    except wheels.RefusedEngine as refused:
        _say(str(refused))
        installed = None
    return installed or _built(entry)


def install(directory: Path) -> Path:
    """Store the compiled engine in `directory`, so that all users of the machine can load it.

    Raises
    ------
    BuildError
        A compiler or ninja is missing, or the compilation failed.
    OSError
        The directory is not writable.
    """
    library = compiled()
    stored = directory / cache.entry()
    if not (stored.exists() and stored.samefile(library)):
        cache.store(library, stored, shared=True)
    return stored


def _built(entry: Path) -> Path:
    """Build the engine, and store it in the user's cache or, if that fails, the temporary cache."""
    library = cache.user_directory() / entry
    try:
        cache.make_private(library.parent)
        why = cache.distrust(library.parent)
    except OSError as error:
        why = f"{library.parent} cannot be written ({error.strerror})"
    if why is None:
        with cache.only_builder(library) as alive:
            if library.exists() and cache.distrust(library) is None:
                return library  # another process built the engine while this one was waiting
            with build(alive) as built:
                try:
                    cache.store(built, library)
                except OSError as error:
                    why = f"{library.parent} cannot be written ({error.strerror})"
                    library = _kept_elsewhere(entry, why, built)
        return library
    library = cache.temporary_directory() / entry
    if library.exists() and cache.distrust(library) is None:
        _say(f"{why}; using the compiled engine in {library.parent}.")
        return library
    with build() as built:
        return _kept_elsewhere(entry, why, built)


def _kept_elsewhere(entry: Path, why: str, built: Path) -> Path:
    library = cache.temporary_directory() / entry
    cache.make_private(library.parent)
    cache.store(built, library)
    _say(
        f"{why}; the compiled engine is stored in {library.parent} (set HPU_MAGIC_CACHE to use "
        "another folder)."
    )
    return library


def _say(sentence: str) -> None:
    print(f"hpu_magic: {sentence}", file=sys.stderr)


def _import(library: Path) -> ModuleType:
    loader = ExtensionFileLoader(NAME, str(library))
    module = module_from_spec(ModuleSpec(NAME, loader, origin=str(library)))
    loader.exec_module(module)
    return module
