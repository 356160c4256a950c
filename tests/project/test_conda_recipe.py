"""Test the conda recipe against pyproject.toml."""

import re
import sys
from pathlib import Path

import pytest
import yaml

import hpu_magic

PROJECT = Path(__file__).parents[2]
RECIPE = PROJECT / "conda" / "recipe.yaml"
VARIANTS = """
python: ["3.11.* *_cp311", "3.12.* *_cp312"]
pytorch: ["2.12", "2.13"]
cxx_compiler: [gxx]
cxx_compiler_version: ["13"]
c_stdlib: [sysroot]
c_stdlib_version: ["2.28"]
"""

sys.path.insert(0, str(PROJECT / "tools"))
import requirements  # noqa: E402


def as_conda(line):
    """Return pip's requirements in conda's syntax."""
    name, limits = re.fullmatch(r"([\w-]+)(.*)", line).groups()
    return f"{name.replace('torch', 'pytorch')} {limits}".strip()


def test_conda_recipe_has_the_requirements_of_pip():
    recipe = yaml.safe_load(RECIPE.read_text())
    described = requirements.described()
    needs = recipe["outputs"][0]["requirements"]
    python, *others = needs["run"]
    assert recipe["context"]["version"] == hpu_magic.__version__
    assert python == f"python {described['project']['requires-python']}"
    assert sorted(others) == sorted(map(as_conda, described["project"]["dependencies"]))
    optional = requirements.of_extras(described, "lab", "lightning")
    assert sorted(needs["run_constraints"]) == sorted(map(as_conda, optional))


def test_conda_recipe_is_valid_for_each_torch_and_python():
    rattler = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    recipe = rattler.Stage0Recipe.from_file(RECIPE)
    platform = rattler.PlatformConfig(target_platform="linux-64")
    rendered = recipe.render(
        rattler.VariantConfig.from_yaml(VARIANTS), rattler.RenderConfig(platform=platform)
    )
    recipes = [variant.recipe.to_dict() for variant in rendered]
    engines = {
        each["build"]["string"] for each in recipes if each["package"]["name"] == "hpu_magic-engine"
    }
    assert len(engines) == 4
