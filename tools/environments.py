"""Create and keep an environment for a library that the project's environment does not contain.

``python tools/environments.py NAME [--keep FOLDER]`` prints its interpreter. The environment is in
FOLDER, by default below the user's cache. It is created again only if the versions in
``tools/environments/NAME.txt`` or the project's environment have changed. All other packages,
including torch and Jupyter, come from the interpreter that runs this script.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
# The torchvision wheel cannot be imported with every build of torch.
STAND_INS = PROJECT / "tests" / "huggingface" / "torchvision_stand_in"


@dataclass(frozen=True)
class Environment:
    """An environment's packages, and folders that take precedence over the project's packages."""

    name: str
    packages: tuple[str, ...]
    own_releases: bool  # whether its versions are independent of the project's
    path: tuple[Path, ...] = ()

    @property
    def releases(self) -> Path:
        """The file with the exact versions of its packages."""
        return PROJECT / "tools" / "environments" / f"{self.name}.txt"

    def constraints(self) -> list[str]:
        """Return pip's options for the constraints."""
        files = [self.releases, *(() if self.own_releases else (PROJECT / "constraints.txt",))]
        return [word for file in files for word in ("-c", str(file))]

    def shared(self) -> str:
        """Return the ``.pth`` file that adds the project's packages after its own."""
        libraries = sysconfig.get_paths()["purelib"]
        return "\n".join((*map(str, self.path), f"import site; site.addsitedir({libraries!r})", ""))

    def made_of(self) -> str:
        """Return a string that changes whenever the environment has to be created again."""
        return f"{sys.version}\n{self.shared()}\n{self.releases.read_text()}"


ENVIRONMENTS = (
    Environment(
        "optimum_habana",
        (
            "accelerate",
            "datasets",
            "diffusers",
            "neural-compressor-pt",
            "optimum-habana",
            "peft",
            "sentence-transformers",
            "torchao",
            "transformers",
        ),
        own_releases=True,
        path=(STAND_INS,),
    ),
    Environment("jupyterhub", ("jupyterhub",), own_releases=False),
    # Libraries that find torchvision would import it in most of the project's tests.
    Environment("torchvision", ("torchvision",), own_releases=False),
    Environment("ray", ("pandas", "pyarrow", "ray", "tensorboardX"), own_releases=False),
    Environment("trl", ("datasets", "trl"), own_releases=False),
)


def main(arguments: list[str]) -> int:
    """Create the environment unless it exists, and print the path of its interpreter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=[each.name for each in ENVIRONMENTS])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", default=_cache())
    chosen = parser.parse_args(arguments)
    [environment] = [each for each in ENVIRONMENTS if each.name == chosen.name]
    folder = chosen.keep.resolve() / environment.name
    python = folder / "bin" / "python"
    stamp = folder / "made_of.txt"
    if not stamp.exists() or stamp.read_text() != environment.made_of():
        print(f"Setting up {folder} (takes a few minutes the first time) ...", file=sys.stderr)
        _make(environment, folder, python)
        stamp.write_text(environment.made_of())
    print(python)
    return 0


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpu_magic"


def _make(environment: Environment, folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-I", "-m", "venv", folder], check=True)
    own = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})["purelib"]
    (Path(own) / "shared.pth").write_text(environment.shared())
    pip = [python, "-I", "-m", "pip", "--disable-pip-version-check"]
    # The standard output must contain only the path.
    subprocess.run(
        [*pip, "install", "-q", *environment.constraints(), *environment.packages],
        check=True,
        stdout=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
