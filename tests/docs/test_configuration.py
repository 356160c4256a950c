"""docs/configuration.md names what can be set, with the defaults that hold."""

import json
import re
from pathlib import Path

from hpu_magic.server.application import HpuMagicServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
# What processes of one's own tell each other, and what only developing needs.
INTERNAL = {"PYTHON", "STARTED_BY", "SANITIZE", "CHECK_LOCKS"}


def rows(heading):
    table = PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \|$", table, re.M)


def test_every_variable_that_is_read_is_explained():
    named = re.compile(r"HPU_MAGIC_([A-Z][A-Z0-9_]*)")
    files = [path for kind in ("*.py", "*.cpp") for path in (ROOT / "hpu_magic").rglob(kind)]
    read = {name for path in files for name in named.findall(path.read_text())}
    assert set(named.findall(PAGE)) == read - INTERNAL


def test_the_settings_of_jupyterlab_are_those_of_its_schema():
    schema = json.loads((ROOT / "labextension" / "schema" / "plugin.json").read_text())
    told = {name: default for name, _, default in rows("JupyterLab")}
    assert list(told) == list(schema["properties"])
    for name, default in told.items():
        holds = schema["properties"][name]["default"]
        if isinstance(holds, dict):
            assert (default, set(holds.values())) == ("all", {True})
        else:
            assert default == ("on" if holds is True else str(holds))


def test_the_settings_of_the_server_are_its_traits():
    own = set(HpuMagicServer.class_own_traits(config=True))
    told = {name.rpartition(".")[2]: default for name, _, default in rows("Jupyter Server")}
    assert set(told) == own
    traits = HpuMagicServer.class_traits()
    assert told == {name: str(traits[name].default_value) for name in own}
