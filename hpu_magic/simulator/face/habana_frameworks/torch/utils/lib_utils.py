"""Find the directories that contain the bridge's native code."""

from hpu_magic.simulator import engine


def get_include_dir() -> str:
    """Return the directory that contains the engine's C++ headers."""
    return str(engine.SOURCES)


def get_lib_dir() -> str:
    """Return the directory that contains the compiled engine."""
    return str(engine.compiled().parent)
