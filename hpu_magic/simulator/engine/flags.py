"""Compiler flags of the engine."""

from __future__ import annotations

import os

# NDEBUG is defined as in PyTorch's own build, because some headers depend on it.
FLAGS = ["-O2", "-DNDEBUG"]
# `make sanitize` builds a separate engine that checks memory, arithmetic, containers and locks.
if _SANITIZERS := os.environ.get("HPU_MAGIC_SANITIZE"):
    FLAGS += [
        f"-fsanitize={_SANITIZERS}",
        "-fno-sanitize-recover=all",
        "-fno-sanitize=vptr",  # this check needs type information that PyTorch does not export
        "-fno-omit-frame-pointer",
        "-O1",
        "-g1",
        "-D_GLIBCXX_ASSERTIONS",
        "-DHPU_MAGIC_CHECK_LOCKS",
    ]
