"""What all commands have in common: help, completion, defaults, wrong input."""

from __future__ import annotations

import random
import traceback

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

OPTIONS = ("--dtype", "--device", "--restart", "--lower", "--fp32", "--level", "--off", "--verbose")
WORDS = (
    *OPTIONS,
    *(
        "-n",
        "-r",
        "-o",
        "--output",
        "--interval",
        "--stop",
        "--no-verbose",
        "--inputs",
        "--warmup",
        "--train",
        "--sample",
        "--inputs",
        "--warmup",
        "--train",
        "--sample",
        "--",
        "-",
        "---",
    ),
    *("on", "off", "eager", "lazy", "hpu", "cpu", "bf16", "fp16", "O2", "O9", "0", "-1", "1e9"),
    *("model", "number", "model.weight", "model.x.y", "..", ".", "missing", "x=1", "--dtype=bf16"),
    *("'", '"', "\\", "\\'", "{", "}", "{number}", "$number", "$", "%", "%s", "%(x)s", "?", "!"),
    *(
        "é",
        "\u202e",
        "\x00",
        "\t",
        "[]",
        "()",
        "*",
        "~",
        "|",
        ";",
        "#",
        "nan",
        "--=",
        "-h",
        "--help",
    ),
)


def completions(shell, line):
    """Return what Tab offers at the end of `line`, as a frontend asks for it."""
    with provisionalcompleter():
        return {one.text for one in shell.Completer.completions(line, len(line))}


def commands(shell):
    magics = shell.magics_manager.magics
    return sorted({name for kind in magics.values() for name in kind if name.startswith("hpu")})


@pytest.mark.parametrize(
    "name",
    [
        *("hpu", "hpu_to", "hpu_mode", "hpu_autocast", "hpu_memory", "hpu_time", "hpu_fit"),
        *("hpu_panel", "hpu_graph", "hpu_replay", "hpu_graphs", "hpu_wrap", "hpu_profile"),
        *("hpu_flags", "hpu_release", "hpu_ledger"),
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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%hpu_to model --dt", ["--dtype"]),
        ("%hpu_to model --dtype b", ["bf16"]),
        ("%%hpu_autocast --", ["--dtype", "--fp32", "--level", "--lower", "--off", "--restart"]),
        ("%%hpu_autocast --dtype bf16 --level ", ["O1", "O2"]),
        ("%hpu_autocast o", ["off", "on"]),
        ("%hpu_mode la", ["lazy"]),
        ("%hpu_flags PT_HPU_LAZY", ["PT_HPU_LAZY_MODE", "PT_HPU_LAZY_ACC_PAR_MODE"]),
        ("%hpu_ledger l", ["last"]),
        ("%hpu_fit --ou", ["--output"]),
    ],
)
def test_tab_completes_options_and_their_values(shell, line, expected):
    assert set(expected) <= completions(shell, line)


def test_tab_completes_the_users_names(shell):
    shell.user_ns["my_model"] = 1j
    assert "my_model.imag" in completions(shell, "%hpu_to my_model.im")
    assert "my_model" in completions(shell, "%hpu_to my_mo")
    assert "my_model" in completions(shell, "%hpu_to --dtype bf16 my_mo")


def test_config_lists_the_defaults_and_refuses_wrong_ones(run):
    text = run("%config HPUMagics").out
    for name in ("device", "autocast_dtype", "time_repeats", "panel_interval"):
        assert f"HPUMagics.{name}" in text
    run("%config HPUMagics.time_repeats = 0")
    assert run("%config HPUMagics.time_repeats").result == 5


def test_misspelt_option_is_named_with_the_right_one(run):
    cell = run("%hpu_to x --dtpye bf16")
    assert isinstance(cell.error, UsageError)
    assert "did you mean '--dtype'?" in cell.err


def raised_by_the_statement(error):
    """Tell whether the error is the timed statement's own, and not the command's."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.startswith("<ipython-input") for frame in frames)


def test_ten_thousand_random_lines_give_no_traceback(
    run, shell, torch, capfd, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shell.user_ns.update(number=3, model=torch.nn.Linear(1, 1))
    shell.run_line_magic("config", "HPUMagics.time_runs = 1")
    names = commands(shell)
    chosen = random.Random(20)
    try:
        for _ in range(10_000):
            name = chosen.choice(names)
            line = " ".join(chosen.choices(WORDS, k=chosen.randrange(5)))
            if name == "hpu_time":
                line = line.replace("!", "")  # would start processes, which says nothing here
            before = set(shell.user_ns)
            try:
                if chosen.random() < 0.5 and shell.find_cell_magic(name):
                    shell.run_cell_magic(name, line, "pass\n")
                elif shell.find_line_magic(name):
                    shell.run_line_magic(name, line)
            except UsageError as error:
                message = str(error)
                assert message
                assert "Traceback" not in message
            except Exception as error:
                if name == "hpu_time" and raised_by_the_statement(error):
                    continue
                raise AssertionError(f"%{name} {line!r} ended with {error!r}") from error
            for new in set(shell.user_ns) - before:
                del shell.user_ns[new]
    finally:
        shell.run_line_magic("config", "HPUMagics.time_runs = 0")
        capfd.readouterr()
