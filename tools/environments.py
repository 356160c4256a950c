"""Create and keep an environment for a library that the project's environment does not contain.

``python tools/environments.py NAME [--keep FOLDER]`` prints its interpreter. The environment is in
FOLDER, by default below the user's cache. The environment is created again only if the versions in
``tools/environments/NAME.txt`` or the project's environment have changed. All other packages,
including torch and Jupyter, come from the interpreter that runs this script. Only the environment
with vLLM, which requires its own torch, contains all packages.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PLUGIN = "https://github.com/vllm-project/vllm-gaudi/archive/refs/tags/v{release}.tar.gz"
# The torchvision wheel cannot be imported with every build of torch.
STAND_INS = PROJECT / "tests" / "huggingface" / "torchvision_stand_in"


@dataclass(frozen=True)
class Environment:
    """An environment's packages, and folders that take precedence over the project's packages."""

    name: str
    packages: tuple[str, ...]
    own_releases: bool  # whether the environment's versions are independent of the project's
    path: tuple[Path, ...] = ()
    plugin: str = ""  # vLLM's Gaudi plugin, as an argument of pip

    @property
    def releases(self) -> Path:
        """The file with the exact versions of the environment's packages."""
        return PROJECT / "tools" / "environments" / f"{self.name}.txt"

    def constraints(self) -> list[str]:
        """Return pip's options for the constraints."""
        files = [self.releases, *(() if self.own_releases else (PROJECT / "constraints.txt",))]
        return [word for file in files for word in ("-c", str(file))]

    def release(self, package: str) -> str:
        """Return the exact version of one of the environment's packages."""
        lines = self.releases.read_text().splitlines()
        return dict(line.split("==") for line in lines if "==" in line)[package]

    def shared(self) -> str:
        """Return the ``.pth`` file that adds the project's packages after the environment's."""
        if self.plugin:
            return ""
        libraries = sysconfig.get_paths()["purelib"]
        return "\n".join((*map(str, self.path), f"import site; site.addsitedir({libraries!r})", ""))

    def made_of(self) -> str:
        """Return a string that changes whenever the environment has to be created again."""
        # The environment with vLLM contains the path of this clone.
        shared = f"{PROJECT} {self.plugin}" if self.plugin else self.shared()
        return f"{sys.version}\n{shared}\n{self.releases.read_text()}"


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
    Environment(
        "deepspeed",
        ("accelerate", "deepspeed", "optimum-habana", "transformers"),
        own_releases=True,
    ),
    Environment("jupyterhub", ("jupyterhub",), own_releases=False),
    # Libraries that find torchvision would import it in most of the project's tests.
    Environment("torchvision", ("torchvision",), own_releases=False),
    Environment("ray", ("pyarrow", "ray", "tensorboardX"), own_releases=False),
    Environment("trl", ("datasets", "trl"), own_releases=False),
    Environment(
        "programs",
        (
            "datasets",
            "denoising-diffusion-pytorch",
            "labml-helpers",
            "labml-nn",
            "torchvision",
            "trl",
            "vit-pytorch",
            "x-transformers",
        ),
        own_releases=False,
    ),
    Environment(
        "vllm",
        (
            "editables",
            "hatchling",
            "neural-compressor-pt",
            "setuptools",
            "setuptools-rust",
            "setuptools-scm",
            "torch",
            "torchaudio",
            "torchvision",
            "transformers",
        ),
        own_releases=True,
        plugin=PLUGIN,
    ),
)


def main(arguments: list[str]) -> int:
    """Create the environment unless it exists, and print the path of its interpreter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=[each.name for each in ENVIRONMENTS])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", default=_cache())
    parser.add_argument("--plugin", help="address or source archive of vLLM's Gaudi plugin")
    chosen = parser.parse_args(arguments)
    [environment] = [each for each in ENVIRONMENTS if each.name == chosen.name]
    if environment.plugin:
        if not (3, 11) <= sys.version_info < (3, 13):
            version = platform.python_version()
            parser.error(f"The environment requires Python 3.11 or 3.12, got {version}.")
        plugin = chosen.plugin or PLUGIN.format(release=environment.release("vllm"))
        environment = replace(environment, plugin=plugin)
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
    if environment.shared():
        # Reinstall packages even if the project has the same releases, so that scripts use this
        # interpreter.
        _install(environment, python, "--no-deps", "--ignore-installed", *environment.packages)
    _install(environment, python, *environment.packages)
    if environment.plugin:
        release = environment.release("vllm")
        built = ("--no-binary", "vllm", f"vllm=={release}", environment.plugin)
        variables = {
            "VLLM_TARGET_DEVICE": "empty",
            "VLLM_VERSION_OVERRIDE": release,
            "SETUPTOOLS_SCM_PRETEND_VERSION": release,
        }
        _install(environment, python, "--no-build-isolation", *built, **variables)
        _install(environment, python, "--no-build-isolation", "-e", f"{PROJECT}[notebook]")


def _install(environment: Environment, python: Path, *arguments: str, **variables: str) -> None:
    pip = [
        python,
        "-I",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-compile",
    ]
    # The standard output must contain only the path.
    subprocess.run(
        [*pip, *environment.constraints(), *arguments],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, **variables},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
