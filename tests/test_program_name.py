"""Test public names of processes."""

import sys
from subprocess import PIPE, Popen

import pytest
from started_process import started, started_python

from hpu_magic import program_name, sessions
from hpu_magic.program_name import LONGEST, command_words, full_command

SECRET = "S3CRET"
PYTHON = sys.executable.rpartition("/")[2]
WAIT = "print(flush=True); input()"
# Arguments of an interpreter, and the public name.
CALLS = [
    (["train.py", f"--token={SECRET}"], "python train.py"),
    (["-u", "deep/train.py", SECRET], "python train.py"),
    (["-X", SECRET, "-W", SECRET, "-Ou", "train.py"], "python train.py"),
    ([f"-W{SECRET}", f"-X{SECRET}", "train.py"], "python train.py"),
    (["--check-hash-based-pycs", "always", "train.py", SECRET], "python train.py"),
    (["-m", "package.train", "--token", SECRET], "python -m package.train"),
    (["-um", "package", SECRET], "python -m package"),
    (["-mpackage", SECRET], "python -m package"),
    (["-c", f"login('{SECRET}')", SECRET], "python -c"),
    ([f"-uclogin('{SECRET}')"], "python -c"),
    (["-"], "python -"),
    ([], "python"),
    (["-m", "ipykernel_launcher", "-f", f"/run/kernel-{SECRET}.json"], "Jupyter kernel"),
    (["/lib/ipykernel_launcher.py", "-f", SECRET], "Jupyter kernel"),
]
OTHERS = [
    (["/usr/bin/trainer", f"--token={SECRET}"], "trainer"),
    (["/bin/bash", "-eo", "pipefail", "run.sh", SECRET], "bash run.sh"),
    (["bash", "-lc", f"TOKEN={SECRET} train"], "bash -c"),
    (["-bash"], "-bash"),
    (["node", SECRET], "node"),
]


def name_of(pid):
    return program_name.program_name(pid, sessions.session(pid))


@pytest.fixture
def seen(monkeypatch):
    def name(words):
        monkeypatch.setattr(program_name, "command_words", lambda _: words)
        return program_name.program_name(0, None)

    return name


@pytest.mark.parametrize(("arguments", "name"), CALLS)
@pytest.mark.parametrize("python", ["python", "/opt/bin/python3.11", "pypy3", "python3.13t"])
def test_python_has_its_script_or_module_without_arguments(seen, python, arguments, name):
    program = python.rpartition("/")[2]
    assert seen([python, *arguments]) == name.replace("python", program, 1)


@pytest.mark.parametrize(("words", "name"), OTHERS)
def test_other_programs_have_no_arguments(seen, words, name):
    assert seen(words) == name


def test_long_names_with_line_breaks_become_one_short_line(seen):
    assert seen(["python", "a\nb\t c.py"]) == "python a b c.py"
    long = seen(["python", "x" * 500])
    assert (len(long), long[-1]) == (LONGEST, "…")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(WAIT)
    return path


def test_name_of_a_script_has_no_token(script):
    with started_python(script.name, f"--token={SECRET}", cwd=script.parent) as process:
        assert name_of(process.pid) == f"{PYTHON} train.py"
        assert full_command(process.pid) == f"{PYTHON} train.py --token={SECRET}"
    assert name_of(process.pid) == "ended process"
    assert full_command(process.pid) == "ended process"


def test_title_of_a_process_is_its_command_line(script):
    title = f"python {script} --token={SECRET}"
    command = (title, "-c", "echo; read line")
    with Popen(command, executable="/bin/sh", stdin=PIPE, stdout=PIPE) as process:
        process.stdout.readline()
        assert command_words(process.pid)[:3] == ["python", str(script), f"--token={SECRET}"]
        assert name_of(process.pid) == "python train.py"


def test_kernel_has_the_name_of_its_notebook(tmp_path, monkeypatch):
    (tmp_path / "ipykernel_launcher.py").write_text(WAIT)
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/deep/analysis 2.ipynb")
    call = ("-m", "ipykernel_launcher", "-f", f"kernel-{SECRET}.json")
    # A child has the environment of the kernel, but is not a kernel.
    with started_python(*call, cwd=tmp_path) as process, started(WAIT) as child:
        assert name_of(process.pid) == "analysis 2.ipynb"
        assert full_command(process.pid) == "analysis 2.ipynb"
        assert name_of(child.pid) == f"{PYTHON} -c"
