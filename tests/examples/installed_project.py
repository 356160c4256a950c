"""An environment with hpu_magic installed, and replacements for other programs."""

import os
import stat
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "docs" / "examples"


def environment(folder: Path, programs: Mapping[str, str] = {}) -> dict[str, str]:
    """Return environment variables that make hpu_magic's plug-in and command available.

    `programs` maps the names of replaced programs to their Python code; all files are written to
    `folder`.
    """
    entries = (PROJECT / "pyproject.toml").read_text().partition("[project.entry-points.pytest11]")
    about = folder / "installed" / "plugin-0.dist-info"
    about.mkdir(parents=True)
    plugin = entries[2].partition("\n\n")[0].replace('"', "")
    (about / "entry_points.txt").write_text(f"[pytest11]{plugin}\n")
    (about / "METADATA").write_text("Name: plugin\nVersion: 0\n")
    own = {"hpu-magic": "from hpu_magic.command_line import main\nsys.exit(main())"}
    for name, code in {**own, **programs}.items():
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\nimport os, sys\n{textwrap.dedent(code)}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = [str(about.parent), str(PROJECT), os.environ.get("PYTHONPATH", "")]
    left_out = ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "PT_HPU_LAZY_MODE", "HPU_MAGIC_SIMULATOR")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {
        **kept,
        "HOME": str(Path.home()),  # contains the engine
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PATH": os.pathsep.join(
            [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "HPU_MAGIC_CARDS_DIR": str(folder / "cards"),
    }
