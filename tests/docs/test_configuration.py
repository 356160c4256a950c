"""docs/configuration.md lists all settings with their defaults."""

import json
import re
from pathlib import Path

from hpu_magic.server.application import HpuMagicServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
# Variables that hpu_magic's processes pass to each other, and variables for development.
INTERNAL = {"PYTHON", "STARTED_BY", "SANITIZE", "CHECK_LOCKS", "DRY_RUN"}


def rows(heading):
    table = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \|$", table, re.M)


def test_each_environment_variable_is_documented():
    named = re.compile(r"HPU_MAGIC_([A-Z][A-Z0-9_]*)")
    files = [path for kind in ("*.py", "*.cpp") for path in (ROOT / "hpu_magic").rglob(kind)]
    read = {name for path in files for name in named.findall(path.read_text())}
    assert set(named.findall(PAGE)) == read - INTERNAL


def test_documented_jupyterlab_settings_match_the_schema():
    schema = json.loads((ROOT / "labextension" / "schema" / "plugin.json").read_text())
    documented = {name: default for name, _, default in rows("JupyterLab")}
    assert list(documented) == list(schema["properties"])
    for name, default in documented.items():
        value = schema["properties"][name]["default"]
        if isinstance(value, dict):
            assert (default, set(value.values())) == ("all", {True})
        else:
            assert default == ("on" if value is True else str(value))


def test_documented_server_settings_match_its_traits():
    own = set(HpuMagicServer.class_own_traits(config=True))
    documented = {name.rpartition(".")[2]: default for name, _, default in rows("Jupyter Server")}
    assert set(documented) == own
    traits = HpuMagicServer.class_traits()
    assert documented == {name: str(traits[name].default_value) for name in own}
