"""The command hpu-magic as a whole; what `top` shows is tested with the monitor."""

import subprocess
import sys

import pytest

from hpu_magic import command_line
from hpu_magic.simulator import engine


def test_build_prints_where_the_engine_lies(capsys):
    assert command_line.main(["build"]) == 0
    assert capsys.readouterr().out == f"{engine.compiled()}\n"


def test_build_into_a_folder_fills_a_cache_that_another_process_loads(tmp_path, script, capsys):
    assert command_line.main(["build", "--into", str(tmp_path / "all")]) == 0
    stored = capsys.readouterr().out.strip()
    assert stored.startswith(str(tmp_path / "all"))
    out = script(
        "from hpu_magic.simulator import engine; print(engine.compiled(), engine.load().__name__)",
        HPU_MAGIC_SYSTEM_CACHE=str(tmp_path / "all"),
        HPU_MAGIC_CACHE=str(tmp_path / "none"),
        PATH="/nowhere",
    )
    assert out == f"{stored} hpu_magic_engine\n"


def test_build_into_a_folder_of_all_says_that_nobody_will_load_it(tmp_path, capsys):
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o777)
    assert command_line.main(["build", "--into", str(tmp_path / "all")]) == 0
    said = capsys.readouterr().err
    assert f"will not be loaded, since {tmp_path / 'all'} can be written by all users" in said


def test_build_into_what_is_no_folder_says_so(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert command_line.main(["build", "--into", str(tmp_path / "file")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("hpu-magic: ")
    assert str(tmp_path / "file") in said


def test_without_a_command_the_commands_are_named(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["--help"])
    said = capsys.readouterr().out
    assert "top " in said
    assert "build " in said
    assert "doctor " in said


def test_top_imports_no_torch():
    code = (
        "import sys\nfrom hpu_magic import command_line\n"
        "command_line.main(['top', '--json'])\nassert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
