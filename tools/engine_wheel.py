"""Build the wheel of a compiled engine, and the wheel that requires the engines of all releases.

``python tools/engine_wheel.py FOLDER`` writes the wheel of the engine for the torch and Python that
run it. These releases do not have to be in the table, and the engine is compiled if necessary.
Hatchling builds both wheels from a temporary project, so builds of the same commit are
byte-for-byte identical if ``SOURCE_DATE_EPOCH`` is set.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from hpu_magic import __version__
from hpu_magic.simulator import engine
from hpu_magic.simulator.engine import key as keys
from hpu_magic.simulator.engine import wheels
from hpu_magic.simulator.engine.key import Key

PROJECT = Path(__file__).parents[1]
# Maps the newest version of the C++ library to the C library of the platforms that provide it.
_MANYLINUX = {(3, 4, 24): (2, 27), (3, 4, 25): (2, 28), (3, 4, 29): (2, 34), (3, 4, 30): (2, 35)}
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
description = "{description}"
readme = {{ text = "{description}. {readme}", content-type = "text/markdown" }}
license = "BSD-3-Clause"
license-files = ["LICENSE"]
requires-python = "{requires_python}"
dependencies = {dependencies}

[tool.hatch.build.targets.wheel]
"""
_README = "hpu_magic loads it automatically. Install it with `pip install 'hpu_magic[engine]'`."
_TAGGED = """\
packages = ["{name}"]

[tool.hatch.build.targets.wheel.hooks.custom]
path = "tagged.py"
"""
_HOOK = """\
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tagged(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data.update(pure_python=False, tag="{tag}")
"""


def main(arguments: list[str]) -> int:
    """Write the wheel of the engine for this torch and Python, and print its path."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print((__doc__ or "").partition("\n\n")[2], file=sys.stderr)
        return 2
    here = keys.here()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    row = wheels.Made(here.torch, python, sys.platform, platform.machine())
    print(of_engine(engine.compiled(), here, row, Path(arguments[0])))
    return 0


def of_engine(library: Path, key: Key, row: wheels.Made, into: Path) -> Path:
    """Write the wheel of an engine that was compiled for ``key``, and return its path."""
    name = wheels.package(row.torch)
    interpreter = f"cp{row.python.replace('.', '')}"
    tag = f"{interpreter}-{interpreter}-{platform_tag(library, row.machine)}"
    with tempfile.TemporaryDirectory(prefix="hpu_magic_engine_wheel_") as folder:
        project = Path(folder)
        package = project / name
        package.mkdir()
        shutil.copyfile(library, package / key.file_name())
        (package / wheels.MANIFEST).write_text(wheels.manifest(key, library))
        (package / "__init__.py").write_text(
            f'"""The engine of hpu_magic for torch {row.torch}, loaded by hpu_magic."""\n'
        )
        (project / "tagged.py").write_text(_HOOK.format(tag=tag))
        return _build(
            project,
            into,
            tag,
            _TAGGED.format(name=name),
            name=name,
            description=f"The compiled hpu device of hpu_magic's simulator for torch {row.torch}",
            requires_python=f"=={row.python}.*",
            dependencies=[f"hpu_magic=={__version__}"],
        )


def of_all(rows: Collection[wheels.Made], into: Path) -> Path:
    """Write the wheel that requires the engines of all releases, and return its path."""
    with tempfile.TemporaryDirectory(prefix="hpu_magic_engine_wheel_") as folder:
        return _build(
            Path(folder),
            into,
            "py3-none-any",
            "bypass-selection = true\n",
            name=wheels.DISTRIBUTION,
            description="The compiled hpu device of hpu_magic's simulator",
            requires_python=">=3.10",
            dependencies=[f"hpu_magic=={__version__}", *requirements(rows)],
        )


def requirements(rows: Collection[wheels.Made]) -> list[str]:
    """Return the requirements for each Python version: the engines, and the releases of torch."""
    found: list[str] = []
    for python, system, machine in sorted({(row.python, row.system, row.machine) for row in rows}):
        marker = (
            f"python_version == '{python}' and sys_platform == '{system}' "
            f"and platform_machine == '{machine}'"
        )
        releases = [
            row.torch
            for row in rows
            if (row.python, row.system, row.machine) == (python, system, machine)
        ]
        found.append(f"torch{_span(releases)}; {marker}")
        found += [
            f"{wheels.package(torch)}=={__version__}; {marker}" for torch in _sorted(releases)
        ]
    return found


def _span(releases: Sequence[str]) -> str:
    """Return the specifier of minor releases, such as ``>=2.12,<2.14``."""
    minors = [int(release.partition(".")[2]) for release in releases]
    major = releases[0].partition(".")[0]
    between = set(range(min(minors), max(minors))) - set(minors)
    excluded = "".join(f",!={major}.{minor}.*" for minor in sorted(between))
    return f">={major}.{min(minors)},<{major}.{max(minors) + 1}{excluded}"


def _sorted(releases: Collection[str]) -> list[str]:
    return sorted(releases, key=lambda release: tuple(map(int, release.split("."))))


def platform_tag(library: Path, machine: str) -> str:
    """Return the platform tag of the oldest system that can load a library."""
    headers = subprocess.run(
        [os.environ.get("OBJDUMP", "objdump"), "-p", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    libc = max(_versions("GLIBC", headers), default=(2, 17))
    needed = max(_versions("GLIBCXX", headers), default=(3, 4))
    libcs = [system for newest, system in sorted(_MANYLINUX.items()) if needed <= newest]
    if not libcs:
        raise ValueError(
            f"{library.name} requires GLIBCXX_{'.'.join(map(str, needed))}, which is newer than "
            f"that of all systems in {Path(__file__).name}."
        )
    major, minor = max(libc[:2], libcs[0])
    return f"manylinux_{major}_{minor}_{machine}"


def _versions(library: str, headers: str) -> list[tuple[int, ...]]:
    found = re.findall(rf"\b{library}_([\d.]+)$", headers, re.MULTILINE)
    return [tuple(map(int, version.split("."))) for version in found]


def _build(
    project: Path, into: Path, tag: str, target: str, *, dependencies: list[str], **described: str
) -> Path:
    described |= {"readme": _README, "version": __version__}
    text = _PROJECT.format(dependencies=json.dumps(dependencies), **described)
    (project / "pyproject.toml").write_text(text + target)
    shutil.copyfile(PROJECT / "LICENSE", project / "LICENSE")
    command = [
        sys.executable,
        "-I",
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        into.resolve(),
    ]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return into / f"{described['name']}-{__version__}-{tag}.whl"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
