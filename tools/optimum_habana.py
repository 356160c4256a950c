"""Make the environment of optimum-habana, with the releases that it was made for, and keep it.

``python tools/optimum_habana.py [--keep FOLDER]`` prints its interpreter. It lies in FOLDER, by
default below the user's cache, and is made again only when ``tools/optimum_habana.txt`` or the
project's own environment is another one. What it lacks, torch and Jupyter among it, is that of the
interpreter that runs this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PROJECT = Path(__file__).parents[1]
RELEASES = PROJECT / "tools" / "optimum_habana.txt"
# The wheel of torchvision does not import beside each build of torch.
STAND_INS = PROJECT / "tests" / "huggingface" / "torchvision_stand_in"
PACKAGES = (
    "accelerate",
    "datasets",
    "diffusers",
    "neural-compressor-pt",
    "optimum-habana",
    "peft",
    "sentence-transformers",
    "torchao",
    "transformers",
)


def main(arguments: list[str]) -> int:
    """Make the environment unless it is there, and print the path of its interpreter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", default=_cache())
    folder = parser.parse_args(arguments).keep.resolve() / "optimum_habana"
    python = folder / "bin" / "python"
    made_of = f"{sys.version}\n{_shared()}\n{RELEASES.read_text()}"
    stamp = folder / "made_of.txt"
    if not stamp.exists() or stamp.read_text() != made_of:
        print(f"Setting up {folder} (some minutes the first time) ...", file=sys.stderr)
        _make(folder, python)
        stamp.write_text(made_of)
    print(python)
    return 0


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpu_magic"


def _shared() -> str:
    """Say what comes after the environment's own packages, as a ``.pth`` file does."""
    libraries = sysconfig.get_paths()["purelib"]
    return f"{STAND_INS}\nimport site; site.addsitedir({libraries!r})\n"


def _make(folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    own = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})["purelib"]
    (Path(own) / "shared.pth").write_text(_shared())
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    # The command line's own output is the path alone.
    subprocess.run(
        [*pip, "install", "-q", "-c", RELEASES, *PACKAGES],
        check=True,
        stdout=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
