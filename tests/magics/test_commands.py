"""What all commands have in common: help, completion, defaults, wrong input.

``make fuzz`` gives each command ten times as many random lines.
"""

from __future__ import annotations

import inspect
import os
import random
import traceback

import pytest
from IPython.core.error import UsageError

import hpu_magic
from hpu_magic.errors import RefusedError
from hpu_magic.magics.settings import Configured, HPUMagics

LINES = int(os.environ.get("HPU_MAGIC_TEST_LINES", "1000"))

# What a line may hold besides the options that the commands declare.
WORDS = (
    *("--", "-", "---", "--=", "--dtype=bf16", "-h", "--help", "--no-such-option"),
    *("on", "off", "eager", "lazy", "hpu", "cpu", "bf16", "fp16", "O2", "O9", "0", "-1", "1e9"),
    *("model", "number", "model.weight", "model.x.y", "..", ".", "missing", "x=1"),
    *("'", '"', "\\", "\\'", "{", "}", "{number}", "$number", "$", "%", "%s", "%(x)s", "?", "!"),
    *("é", "\u202e", "\x00", "\t", "[]", "()", "*", "~", "|", ";", "#", "nan"),
)


def commands(shell):
    magics = shell.magics_manager.magics
    return sorted({name for kind in magics.values() for name in kind if name.startswith("hpu")})


def options(shell, name):
    """Return every spelling of every option that a command declares."""
    magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
    return [spelling for action in magic.parser._actions for spelling in action.option_strings]


@pytest.mark.parametrize(
    "name",
    [
        *("hpu", "hpu_to", "hpu_mode", "hpu_autocast", "hpu_memory", "hpu_time", "hpu_fit"),
        *("hpu_panel", "hpu_graph", "hpu_replay", "hpu_graphs", "hpu_wrap", "hpu_profile"),
        *("hpu_flags", "hpu_release", "hpu_ledger", "hpu_fp8", "hpu_port", "hpu_doctor"),
    ],
)
def test_help_has_usage_options_and_examples(run, shell, name):
    mark = "%" if shell.find_line_magic(name) else "%%"
    text = run(f"{mark}{name}?").out
    assert "Examples" in text
    assert f"%{name}" in text


def test_every_command_is_documented(shell):
    for name in commands(shell):
        magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
        assert name in magic.__doc__
        assert "Examples" in magic.__doc__


DECLARED = (
    *("hpu", "hpu_to", "hpu_mode", "hpu_flags", "hpu_release", "hpu_memory", "hpu_time"),
    *(
        "hpu_panel",
        "hpu_profile",
        "hpu_doctor",
        "hpu_graph",
        "hpu_replay",
        "hpu_graphs",
        "hpu_wrap",
    ),
)


@pytest.mark.parametrize("name", DECLARED)
def test_options_are_the_parameters_of_the_commands_function(shell, name):
    magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
    function = getattr(hpu_magic, {"hpu": "status"}.get(name, name.removeprefix("hpu_")))
    parameters = inspect.signature(function).parameters.values()
    named = {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}
    actions = {one.dest: one for one in magic.parser._actions if one.option_strings}
    assert set(actions) - {"output"} == set(named)
    settings = HPUMagics()
    for parameter, default in named.items():
        declared = actions[parameter].default
        if isinstance(declared, Configured):
            declared = declared.value(settings)
        assert declared == default, parameter


def test_config_lists_the_defaults_and_refuses_wrong_ones(run):
    text = run("%config HPUMagics").out
    for name in ("device", "autocast_dtype", "time_repeats", "panel_interval"):
        assert f"HPUMagics.{name}" in text
    run("%config HPUMagics.time_repeats = 0")
    assert run("%config HPUMagics.time_repeats").result == 5
    # IPython keeps the wrong value all the same, for whatever reads it next.
    again = run("%reload_ext hpu_magic")
    assert again.error is None
    assert "'time_repeats'" in again.out
    assert "The default holds instead." in again.out
    assert run("%config HPUMagics.time_repeats").result == 5


# What an option of these kinds says is about one call.
NAMES_OF_ONE_CALL = {
    *("--help", "-h", "--off", "--stop", "--output", "--drop", "--inputs"),
    *("--train", "--infer", "--data", "--allow", "--block"),
    *("--ranks", "--push", "--pull", "--profile", "--json"),
    *(
        "--cards",
        "--parallel",
        "--optimizer",
        "--checkpointing",
        "--accumulate",
        "--batch",
        "--loss",
        "--observed",
        "--apply",
    ),
}


def test_every_other_option_has_a_default_that_config_sets(shell):
    for name in commands(shell):
        magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
        for action in magic.parser._actions:
            if action.option_strings and NAMES_OF_ONE_CALL.isdisjoint(action.option_strings):
                assert isinstance(action.default, Configured), (name, action.option_strings)
                assert action.default.name in HPUMagics.class_trait_names(config=True)


def test_a_configured_default_holds_until_the_option_is_given(run, torch, forgetful, tmp_path):
    run("%config HPUMagics.profile_trace = False")
    try:
        run("%%hpu_profile -o quiet\nx = torch.ones(2, device='hpu') + 1")
        run(f"%%hpu_profile --trace --folder {tmp_path} -o loud\ntorch.ones(2, device='hpu') + 1")
        assert run("quiet.trace").result is None
        assert run("loud.trace").result is not None
    finally:
        run("%config HPUMagics.profile_trace = True")
    with_lists = run("%config HPUMagics.autocast_lower = 'no_such_operator'")
    try:
        assert with_lists.error is None
        assert "no_such_operator" in run("%%hpu_autocast\nx = 1").err
    finally:
        run("%config HPUMagics.autocast_lower = ''")


def test_misspelt_option_is_named_with_the_right_one(run):
    cell = run("%hpu_to x --dtpye bf16")
    assert isinstance(cell.error, UsageError)
    assert "did you mean '--dtype'?" in cell.err


def raised_by_the_statement(error):
    """Tell whether the error is the timed statement's own, and not the command's."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.startswith("<ipython-input") for frame in frames)


def run_line(shell, name, line, *, as_cell):
    """Run a command; fail if it ends with anything but a sentence."""
    before = set(shell.user_ns)
    try:
        if as_cell:
            shell.run_cell_magic(name, line, "pass\n")
        else:
            shell.run_line_magic(name, line)
    except UsageError as error:
        message = str(error)
        assert message
        assert "Traceback" not in message
    except Exception as error:
        if name != "hpu_time" or not raised_by_the_statement(error):
            raise AssertionError(f"%{name} {line!r} ended with {error!r}") from error
    for new in set(shell.user_ns) - before:
        del shell.user_ns[new]


def is_run_as_cell(shell, chosen, name):
    """Choose a form that the command has; as a cell it takes far longer, so that is one in ten."""
    forms = shell.find_line_magic(name), shell.find_cell_magic(name)
    return forms[0] is None or (forms[1] is not None and chosen.random() < 0.1)


def no_workers(count, profile=None):
    """Take the place of starting processes, which says nothing of the line."""
    raise RefusedError(f"No {count} workers by {profile}.")


@pytest.mark.filterwarnings("ignore")  # of what %hpu_time takes for a statement
def test_random_lines_for_each_command_give_no_traceback(
    run, shell, torch, forgetful, capfd, tmp_path, monkeypatch
):
    folder = tmp_path / "work"  # a line may name the folder above it, or the home folder
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr("hpu_magic.parallel.session.start", no_workers)
    monkeypatch.setenv("LANGUAGE", "C")  # argparse looks for translations of each message anew
    shell.user_ns.update(number=3, model=torch.nn.Linear(1, 1))
    shell.run_line_magic("config", "HPUMagics.time_runs = 1")
    names = commands(shell)
    words = (*WORDS, *{option: None for name in names for option in options(shell, name)})
    chosen = random.Random(20)
    try:
        for name in names:
            lines = [" ".join(chosen.choices(words, k=chosen.randrange(5))) for _ in range(LINES)]
            for line in dict.fromkeys(lines):  # some are drawn more than once
                if name == "hpu_time":
                    line = line.replace("!", "")  # would start processes, which says nothing here
                run_line(shell, name, line, as_cell=is_run_as_cell(shell, chosen, name))
    finally:
        shell.run_line_magic("config", "HPUMagics.time_runs = 0")
        capfd.readouterr()


@pytest.mark.parametrize("body", ["1 / 0", "pass"])
def test_what_fails_or_is_refused_draws_no_random_numbers(run, shell, torch, forgetful, body):
    shell.user_ns.update(model=torch.nn.Linear(1, 1), torch=torch)
    torch.hpu.manual_seed(3)

    def state():
        return random.getstate(), torch.get_rng_state().tolist(), torch.hpu.get_rng_state().tolist()

    before = state()
    for name in commands(shell):
        for line in ("--no-such-option", "'", "model missing", "--dtype fp8", "--level O2"):
            for mark in ("%", "%%"):
                run(f"{mark}{name} {line}\n{body}")
                assert state() == before, f"{mark}{name} {line}"
    for command in ("hpu_autocast", "hpu_memory", "hpu_time -n 2", "hpu_profile --no-trace"):
        assert (run(f"%%{command}\n{body}").error is None) is (body == "pass")
        assert state() == before, command


def test_an_option_of_a_command_without_any_is_told_so(run, shell):
    cell = run("%hpu --foo")
    assert cell.err.strip() == "UsageError: %hpu takes no options: leave '--foo' out."
    without = [name for name in commands(shell) if not options(shell, name)]
    assert "hpu" in without
    for name in without:
        mark = "%" if shell.find_line_magic(name) else "%%"
        said = run(f"{mark}{name} --foo=1" + ("" if mark == "%" else "\n1")).err
        assert "takes no options: leave '--foo=1' out" in said
