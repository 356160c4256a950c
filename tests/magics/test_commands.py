"""Test behavior of all commands: help, options, defaults and invalid input.

``make fuzz`` runs ten times as many random lines per command.
"""

import inspect
import os
import random
import re
import traceback
import warnings
from pathlib import Path

import pytest
from IPython.core.error import UsageError

import hpu_magic
from hpu_magic import backend
from hpu_magic.errors import HPUError
from hpu_magic.magics import overview
from hpu_magic.magics.settings import Configured, HPUMagics

LINES = int(os.environ.get("HPU_MAGIC_TEST_LINES", "300"))

# Words of random lines, in addition to the declared options.
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


def option_names(shell, name):
    """Return all option names of a command."""
    magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
    return [spelling for action in magic.parser._actions for spelling in action.option_strings]


@pytest.mark.parametrize("name", ["hpu", "hpu_capture", "hpu_fit", "hpu_workers"])
def test_help_has_usage_options_and_examples(run, shell, name):
    line, cell = shell.find_line_magic(name), shell.find_cell_magic(name)
    text = run(f"{'%' if line else '%%'}{name}?").out
    assert "Examples" in text
    assert bool(re.search(rf"^\s*%{name}\b", text, re.MULTILINE)) == (line is not None)
    assert bool(re.search(rf"^\s*%%{name}\b", text, re.MULTILINE)) == (cell is not None)


def test_docstring_of_each_command_has_examples(shell):
    for name in commands(shell):
        magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
        assert name in magic.__doc__
        assert "Examples" in magic.__doc__


ONLY_IN_A_CELL = {"hpu_from_cuda": {"show"}}
"""Options that have no parameter in the function."""


def test_options_match_the_parameters_of_the_function(shell):
    settings = HPUMagics()
    for name in commands(shell):
        magic = shell.find_line_magic(name) or shell.find_cell_magic(name)
        function = getattr(hpu_magic, {"hpu": "status"}.get(name, name.removeprefix("hpu_")))
        parameters = inspect.signature(function).parameters
        for action in magic.parser._actions:
            if action.dest in ONLY_IN_A_CELL.get(name, ()) or action.dest == "statement":
                continue
            if action.dest == "output" and "output" not in parameters:
                continue
            default = action.default
            if isinstance(default, Configured):
                default = default.value(settings)
            expected = parameters[action.dest].default
            assert default == (None if expected is inspect.Parameter.empty else expected), name
            spelled = f"--{action.dest.replace('_', '-')}"
            assert not action.option_strings or spelled in action.option_strings
        named = {
            parameter.name
            for parameter in parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        assert named <= {action.dest for action in magic.parser._actions}, name


def test_each_public_function_has_a_command(shell):
    known = {"status", *(name.removeprefix("hpu_") for name in commands(shell) if name != "hpu")}
    without = {"__version__", "HPUError", "watch", "trace", "estimate_collective"}
    assert set(hpu_magic.__all__) - known == without


def test_overview_lists_all_commands(run, shell):
    listed = {line.lstrip("%").split()[0] for line, _ in overview.COMMANDS}
    assert listed == set(commands(shell))
    help_text = run("%hpu?").out
    assert all(line in help_text for line, _ in overview.COMMANDS)


def test_each_trait_is_the_default_of_an_option(shell):
    used = {
        action.default.name
        for name in commands(shell)
        for action in (shell.find_line_magic(name) or shell.find_cell_magic(name)).parser._actions
        if isinstance(action.default, Configured)
    }
    of_the_process = {"card_time"}  # starts a clock, which all commands share
    assert used | of_the_process == set(HPUMagics.class_own_traits(config=True))


def test_card_time_has_no_effect_on_a_card(monkeypatch):
    monkeypatch.setattr(backend, "is_simulated", lambda: False)
    with pytest.warns(UserWarning, match="card_time has no effect"):
        backend.set_card_time("ideal")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend.set_card_time("off")


def test_config_shows_defaults_and_rejects_invalid_values(run):
    text = run("%config HPUMagics").out
    for name in ("autocast_dtype", "time_repeats", "memory_live_interval"):
        assert f"HPUMagics.{name}" in text
    run("%config HPUMagics.time_repeats = 0")
    assert run("%config HPUMagics.time_repeats").result == 5
    # IPython keeps the invalid value in its configuration.
    again = run("%reload_ext hpu_magic")
    assert again.error is None
    assert "'time_repeats'" in again.out
    assert "The default is used instead." in again.out
    assert run("%config HPUMagics.time_repeats").result == 5


def test_option_overrides_the_configured_default(run, torch, forgetful, tmp_path):
    run("%config HPUMagics.profile_trace = False")
    try:
        run("%%hpu_profile -o quiet\nx = torch.ones(2, device='hpu') + 1")
        run(f"%%hpu_profile --trace --dir {tmp_path} -o loud\ntorch.ones(2, device='hpu') + 1")
        assert run("quiet.trace").result is None
        assert run("loud.trace").result is not None
    finally:
        run("%config HPUMagics.profile_trace = True")


LINES_TO_TYPE = {
    "%hpu_to x --dtpye bf16": "%hpu_to x --dtype bf16",
    "%hpu_to x bf16": "%hpu_to x --dtype bf16",
    "%hpu_to cpu": "%hpu_to model --device cpu",
    "%hpu --json": "%hpu_doctor --json",
    "%hpu_graph --list": "%hpu_graphs to list the graphs",
    "%hpu_capture --list": "%hpu_graphs to list the graphs",
    "%%hpu_capture step --list\n1": "%hpu_graphs",
    "%hpu_graphs --drop step": "%hpu_graphs --delete step",
    "%hpu_replay step 100": "%hpu_replay step --runs 100",
    "%hpu_workers stop": "%hpu_workers off",
    "%hpu_workers start": "%hpu_workers on",
    "%hpu_parallel off": "%hpu_workers off",
    "%%hpu_workers -n 4\n1": "%%hpu_workers --cards 4",
    "%%hpu_workers off\n1": "%hpu_workers off",
    "%hpu_quantize": "%hpu_fp8_quantize model --inputs x",
    "%%hpu_profile --trace traces\n1": "%%hpu_profile --dir traces",
    "%hpu_port": "%%hpu_from_cuda",
    "%hpu_panel": "%hpu_memory_live",
    "%hpu_memory_live --stop": "%hpu_memory_live off",
    "%hpu_release": "%hpu_restart",
    "%hpu_autocast explain model x": "%hpu_explain_autocast model --inputs x",
    "%%hpu_autocast --off\n1": "%%hpu_autocast off",
    "%hpu_autocast bf16": "%hpu_autocast --dtype bf16",
    "%hpu_estimate model": "%hpu_estimate model --inputs x,y",
    "%hpu_estimate model x": "%hpu_estimate model --inputs x",
    "%hpu_estimate model inputs=x": "%hpu_estimate model --inputs x",
    "%hpu_estimate model --inputs x, y": "%hpu_estimate model --inputs x,y",
    "%hpu_estimate model --inputs x --infer": "%hpu_estimate model --inputs x --no-train",
    "%hpu_estimate model --inputs x --generation gaudi3": (
        "%hpu_estimate model --inputs x --card gaudi3"
    ),
    "%hpu_estimate_generation model": (
        "%hpu_estimate_generation model --prompt 512 --new-tokens 128"
    ),
    "%hpu_estimate_generation model 512 128": (
        "%hpu_estimate_generation model --prompt 512 --new-tokens 128"
    ),
    "%hpu_estimate model --inputs x --gpus 8": "%hpu_estimate model --inputs x --cards 8",
    "%hpu_estimate model --inputs=x --fp8": "%hpu_estimate model --inputs x --dtype fp8",
    "%hpu_workers start 4": "%hpu_workers on --cards 4",
    "%hpu_ledger on graphs,peak": "%hpu_ledger on --show graphs,peak",
    "%hpu_restart lazy": "%hpu_restart --mode lazy",
    "%hpu_restart --lazy": "%hpu_restart --mode lazy",
    "%hpu_estimate model --inputs x --card gaudi4": "%hpu_estimate model --inputs x --card gaudi2",
    "%hpu_estimate model --inputs x --card": "%hpu_estimate model --inputs x --card gaudi2",
    "%hpu_doctor --verbose": "%hpu_doctor --all",
    "%%hpu_dry_run --gpus 8\n1": "%%hpu_dry_run --cards 8",
    "%%hpu_simulate\n1": "%%hpu_dry_run (first line of the cell)",
    "%hpu_memory --verbose": "%hpu_memory --all",
}


@pytest.mark.parametrize("cell", LINES_TO_TYPE)
def test_usage_error_shows_the_corrected_line(run, shell, cell):
    shell.user_ns.update(model=1, x=2, y=3)
    text = run(cell).err
    line = LINES_TO_TYPE[cell]
    assert re.search(rf"(^|\W){re.escape(line)}(\.|\n| \(|$)", text), text


def test_documented_lines_can_be_copied_with_their_comments(shell):
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    [block] = re.findall(r"<!-- listed -->\n```python\n(.*?)```", page, re.DOTALL)
    lines = re.findall(r"^(%%?)(hpu\w*) ?(.*  # .*)$", block, re.MULTILINE)
    assert {name for _, name, _ in lines} == set(commands(shell))
    for mark, name, rest in lines:
        find = shell.find_cell_magic if mark == "%%" else shell.find_line_magic
        magic = find(name)
        assert "#" not in str(magic.__self__.parse(magic, rest, cell=mark == "%%"))


@pytest.mark.parametrize("word", ["'a #b'", '"a #b"', "a\\ #b"])
def test_quoted_number_sign_is_not_a_comment(run, word):
    assert "Unknown variable 'a #b'" in run(f"%hpu_to {word}  # moves nothing").err


def test_comments_are_not_timed(run):
    assert "needs a statement" in run("%hpu_time -n 1  # measure nothing").err
    assert "ran" in run("%%hpu_time -n 1 -r 1  # measure the cell\nprint('ran')").out


def test_unknown_option_lists_all_options(run):
    assert run("%hpu_time --ops x").err == (
        "UsageError: %hpu_time has no option '--ops': type %hpu_time model(batch)\n"
        "Options: -n/--runs N, -r/--repeats N, -o/--output NAME\n"
    )
    assert "off" not in run("%%hpu_autocast --ops linear\n1").err.partition("Options")[0]


def is_raised_by_the_statement(error):
    """Return whether the timed statement, not the command, raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.startswith("<ipython-input") for frame in frames)


def assert_no_traceback(shell, name, line, *, as_cell):
    """Run a command; only a UsageError is allowed."""
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
        if name != "hpu_time" or not is_raised_by_the_statement(error):
            raise AssertionError(f"%{name} {line!r} ended with {error!r}") from error
    for new in set(shell.user_ns) - before:
        del shell.user_ns[new]


def is_run_as_cell(shell, chosen, name):
    """Choose the line or cell form; cells are slower, so only one in ten is a cell."""
    forms = shell.find_line_magic(name), shell.find_cell_magic(name)
    return forms[0] is None or (forms[1] is not None and chosen.random() < 0.1)


def no_workers(count, profile=None):
    """Replacement for the function that starts workers, which random lines must not call."""
    raise HPUError(f"No {count} workers by {profile}.")


def no_process(self, command, variables, inherited=()):
    """Replacement for the process of a dry run."""
    raise HPUError(f"No process for {command}.")


@pytest.mark.filterwarnings("ignore")  # warnings of random statements of %hpu_time
def test_random_lines_raise_only_usage_errors(
    run, shell, torch, forgetful, capfd, tmp_path, monkeypatch
):
    folder = tmp_path / "work"  # a line may contain ".." or the home folder
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr("hpu_magic.parallel.session.start", no_workers)
    monkeypatch.setattr("hpu_magic.dry_runs.process.Processes.start", no_process)
    monkeypatch.setenv("LANGUAGE", "C")  # otherwise argparse looks up translations each time
    shell.user_ns.update(number=3, model=torch.nn.Linear(1, 1))
    shell.run_line_magic("config", "HPUMagics.time_runs = 1")
    names = commands(shell)
    words = (*WORDS, *{option: None for name in names for option in option_names(shell, name)})
    chosen = random.Random(20)
    try:
        for name in names:
            lines = [" ".join(chosen.choices(words, k=chosen.randrange(5))) for _ in range(LINES)]
            for line in dict.fromkeys(lines):
                if name == "hpu_time":
                    line = line.replace("!", "")  # would start processes
                assert_no_traceback(shell, name, line, as_cell=is_run_as_cell(shell, chosen, name))
    finally:
        shell.run_line_magic("config", "HPUMagics.time_runs = 0")
        capfd.readouterr()


@pytest.mark.parametrize("body", ["1 / 0", "pass"])
def test_failed_commands_do_not_change_random_states(run, shell, torch, forgetful, body):
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
