"""The code on the site's pages and in the README runs and prints the output shown there."""

import configparser
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shell_commands
import yaml
from fenced_blocks import PROJECT, blocks_of, environment_of, pages
from shown_output import assert_shows
from traitlets.config import Config
from traitlets.config.configurable import Configurable

CELLS = ("python", "ipython")
COMMANDS = ("sh", "console")
SHOWN = "output"
LISTED = "listed"
FILES: dict[str, Callable[[str], Any]] = {
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": shell_commands.tomllib.loads,
    "ini": configparser.ConfigParser().read_string,
    "json": json.loads,
}
NOT_CODE = ("text", SHOWN)
NOT_RUN = [
    *[("CONTRIBUTING.md", "test_worked_examples.py")] * 15,
    ("docs/tour/dry_run.md", "LitGPT is not installed"),
    (
        "docs/tour/from_optimum_habana.md",
        "optimum-habana needs a separate environment, in which make huggingface tests it",
    ),
    *[("docs/tour/serving.md", "vLLM needs a separate environment")] * 4,
    (
        "docs/tour/train.md",
        "it runs in the notebook fine_tune.ipynb, with imports of several seconds",
    ),
]
"""Page and reason of each block that is neither run nor checked."""


def _is_run(block):
    if block.reason or _is_configuration(block) or block.comment == LISTED:
        return False
    return block.language in CELLS or (block.language in COMMANDS and block.comment == "run")


def _is_configuration(block):
    return block.language == "python" and block.code.startswith("c = get_config()\n")


BLOCKS = {page: blocks_of(page) for page in pages()}
RUN_PAGES = [page for page, blocks in BLOCKS.items() if any(map(_is_run, blocks))]


def _all_blocks():
    return [block for blocks in BLOCKS.values() for block in blocks]


@pytest.mark.parametrize("page", RUN_PAGES)
def test_code_of_a_page_runs_with_the_shown_output(page, forked_script, tmp_path):
    run_blocks = [block for block in BLOCKS[page] if _is_run(block)]
    source = (Path(__file__).parent / "page_runner.py").read_text()
    sources = [(block.language, block.code) for block in run_blocks]
    # With private cards, the card of the page is HPU 0.
    environment = {"HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards"), **environment_of(page)}
    forked_script(f"{source}\nrun({str(tmp_path)!r}, {sources!r})", **environment)
    answers = json.loads((tmp_path / "answers.json").read_text())
    failed = [
        f"{block.place}: {text.strip()}"
        for block, (text, error) in zip(run_blocks, answers, strict=True)
        if error != block.comment.partition("raises: ")[2]
    ]
    assert failed == []
    texts = {block: text for block, (text, _) in zip(run_blocks, answers, strict=True)}
    for before, shown in zip(BLOCKS[page], BLOCKS[page][1:], strict=False):
        if shown.language == SHOWN:
            assert before in texts, f"{shown.place}: nothing runs above this output"
            assert_shows(shown, texts[before])


@pytest.mark.parametrize("page", BLOCKS)
def test_terminal_commands_are_valid(page):
    problems = [
        f"{block.place}: {problem}"
        for block in BLOCKS[page]
        if block.language in COMMANDS and not block.reason
        for problem in shell_commands.problems_of(block.code)
    ]
    assert problems == []


def test_options_of_listed_magics_are_valid(shell):
    lines = [
        (block.place, line.partition("#")[0].strip())
        for block in _all_blocks()
        if block.comment == LISTED
        for line in block.code.splitlines()
    ]
    assert [(place, line) for place, line in lines if not _parses(shell, line)] == []


def _parses(shell, line):
    name, _, arguments = line.lstrip("%").partition(" ")
    magic = shell.find_magic(name, "cell" if line.startswith("%%") else "line")
    if name == "load_ext":
        return True
    if magic is None or not line.startswith("%"):
        return False
    magic.parser.parse_argstring(arguments)
    return True


def test_documented_settings_exist():
    import ipyparallel.cluster.launcher  # noqa: F401

    import hpu_magic.server.application  # noqa: F401

    known = {cls.__name__: cls for cls in _subclasses(Configurable)}
    for block in filter(_is_configuration, _all_blocks()):
        if block.reason:
            continue
        settings = Config()
        exec(block.code, {"get_config": lambda settings=settings: settings})
        unknown = [
            f"{name}.{trait}"
            for name, traits in settings.items()
            for trait in traits
            if name not in known or trait not in known[name].class_traits()
        ]
        assert unknown == [], block.place


def _subclasses(cls):
    return {cls}.union(*map(_subclasses, cls.__subclasses__()))


def test_each_extra_is_described():
    rows = re.findall(r"^\| `(\w+)` \|", (PROJECT / "docs/install/laptop.md").read_text(), re.M)
    assert sorted(rows) == sorted(shell_commands.PROJECT_TABLE["optional-dependencies"])


def test_configuration_files_can_be_parsed():
    for block in _all_blocks():
        if block.language in FILES and not block.reason:
            FILES[block.language](block.code)


def test_each_block_is_run_or_checked_or_has_a_reason():
    known = {*CELLS, *COMMANDS, *FILES, *NOT_CODE}
    unknown = [block for block in _all_blocks() if block.language not in known]
    assert [block.place for block in unknown if not block.reason] == []
    assert sorted((block.page, block.reason) for block in _all_blocks() if block.reason) == NOT_RUN
