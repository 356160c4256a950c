"""The pages of commands list the options of their parsers."""

import re

import pytest
from website import commands
from website.text import from_docstring, table

from hpu_magic import command_line


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    commands.write(folder)
    return folder


def rows(page):
    """Return the names of each definition."""
    defined = re.findall(r"^(.+)\n: ", page, re.MULTILINE)
    return [{each.split()[0] for each in re.findall(r"`([^`]+)`", line)} for line in defined]


def declared(parser):
    actions = [action for action in parser._actions if action.dest != "help"]
    return [set(each.option_strings) or {typed(each)} for each in actions]


def typed(action):
    if action.choices and not action.metavar:
        return "{" + ",".join(action.choices) + "}"
    return str(action.metavar or action.dest)


def test_each_registered_magic_has_a_page_with_its_options(pages, shell):
    registered = {
        name: magic
        for kind in ("line", "cell")
        for name, magic in shell.magics_manager.magics[kind].items()
        if re.match(r"hpu(_|$)", name)
    }
    written = {path.stem: path.read_text() for path in (pages / "magics").glob("hpu*.md")}
    assert written.keys() == registered.keys()
    for name, magic in registered.items():
        assert rows(written[name]) == declared(magic.parser), name
        heading, _, rest = written[name].partition("\n")
        for kind, mark in (("line", "%"), ("cell", "%%")):
            has = name in shell.magics_manager.magics[kind]
            assert bool(re.search(rf" {mark}{name}(,|$)", heading.replace("\\", ""))) == has
            assert bool(re.search(rf"^{mark}{name}\b", rest, re.MULTILINE)) >= has


def test_each_subcommand_has_a_section_with_its_options(pages):
    page = (pages / "terminal.md").read_text()
    sections = re.split(r"^## hpu-magic (.*)$", page, flags=re.MULTILINE)[1:]
    written = dict(zip(sections[::2], sections[1::2], strict=True))
    parsers = commands.subcommands(command_line.parser())
    assert written.keys() == parsers.keys()
    for name, parser in parsers.items():
        assert rows(written[name]) == declared(parser), name


def test_pages_show_the_defaults_of_a_new_session(pages):
    page = (pages / "magics" / "hpu_time.md").read_text()
    option = "`-r N`, `--repeats N`\n: number of repeats of the timed runs"
    assert f"{option} (default: `5`, a [setting](" in page
    estimate = (pages / "magics" / "hpu_estimate.md").read_text()
    assert "\n: the generation of the card (default: `gaudi2`, a [setting](" in estimate
    assert "| `time_repeats` | `5` |" in (pages / "magics" / "index.md").read_text()


def test_docstring_examples_become_code_blocks():
    text = """Show *all* of ``a|b`` -- with --new-tokens, see name_. Examples::

        first = 1

            second

    Then `more`.
    """
    assert from_docstring(text, "python") == (
        "Show \\*all\\* of `a|b` -- with `--new-tokens`, see name\\_. Examples:\n\n"
        "```python\nfirst = 1\n\n    second\n```\n\nThen `more`."
    )
    assert table(("a", "b"), [("`x|y`", "z")]) == "| a | b |\n|---|---|\n| `x\\|y` | z |\n"
