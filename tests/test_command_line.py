"""Test the command hpu-magic; the tests of `top` are in tests/monitor."""

import re
import shlex

import pytest

import hpu_magic
from hpu_magic import command_line
from hpu_magic.simulator import engine


def test_build_prints_the_path_of_the_engine(capsys):
    assert command_line.main(["build"]) == 0
    assert capsys.readouterr().out == f"{engine.compiled()}\n"


def test_another_process_loads_an_engine_built_into_a_folder(tmp_path, script, capsys):
    assert command_line.main(["build", "--dir", str(tmp_path / "all")]) == 0
    stored = capsys.readouterr().out.strip()
    assert stored.startswith(str(tmp_path / "all"))
    out = script(
        "from hpu_magic.simulator import engine; print(engine.compiled(), engine.load().__name__)",
        HPU_MAGIC_SYSTEM_CACHE=str(tmp_path / "all"),
        HPU_MAGIC_CACHE=str(tmp_path / "none"),
        PATH="/nowhere",
    )
    assert out == f"{stored} hpu_magic_engine\n"


def test_build_into_a_public_folder_warns(tmp_path, capsys):
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o777)
    assert command_line.main(["build", "--dir", str(tmp_path / "all")]) == 0
    error = capsys.readouterr().err
    assert f"will not be loaded, because {tmp_path / 'all'} can be written by all users" in error


def test_build_into_a_file_fails(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert command_line.main(["build", "--dir", str(tmp_path / "file")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hpu-magic: ")
    assert str(tmp_path / "file") in error


def test_help_lists_all_commands_with_valid_examples(capsys):
    with pytest.raises(SystemExit) as left:
        command_line.main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    commands = re.findall(r"^  ([\w-]+) +\w", text.partition("exit\n\n")[2], re.MULTILINE)
    examples = re.findall(r"\$ hpu-magic (.+)", text)
    parser = command_line.parser()
    assert [parser.parse_args(shlex.split(line)) and line.split()[0] for line in examples] == (
        commands[: len(examples)]
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [("tpo", "did you mean 'top'?"), ("x", "use top, hl-smi, estimate, dry-run, doctor, build.")],
)
def test_unknown_command_gets_a_suggestion(capsys, word, hint):
    with pytest.raises(SystemExit) as left:
        command_line.main([word, "--json"])
    assert left.value.code == 2
    assert capsys.readouterr().err == f"hpu-magic: unknown command {word!r}: {hint}\n"


def test_missing_command_prints_the_help(capsys):
    with pytest.raises(SystemExit) as left:
        command_line.main([])
    assert left.value.code == 2
    assert capsys.readouterr().err == command_line.parser().format_help()


def test_python_m_runs_the_same_command(script):
    out = script(
        """
        import runpy, sys
        sys.argv = ["hpu_magic", "--version"]
        try:
            runpy.run_module("hpu_magic", run_name="__main__", alter_sys=True)
        except SystemExit:
            assert "torch" not in sys.modules
        """
    )
    assert out == f"{hpu_magic.__version__}\n"
