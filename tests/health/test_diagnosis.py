"""Test the doctor: text, JSON, magic, and a Python without packages."""

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_machine import GIB, card

import hpu_magic
from hpu_magic.health import SCHEMA, examine
from hpu_magic.health.checks import CHECKS
from hpu_magic.monitor import Holder, Snapshot

PROJECT = Path(__file__).parents[2]
GROUPS = ["installed", "versions", "cards", "host", "flags", "storage", "jupyter"]
CHECKED = (
    *("torch", "habana_frameworks", "lightning", "transformers", "accelerate", "optimum"),
    *("jupyterlab", "ipywidgets", "anywidget", "bokeh", "ipyparallel", "IPython"),
)


@pytest.fixture
def healthy(made):
    """A machine without problems."""
    made.install(
        *("torch==2.13.0+cpu", "lightning==2.6.6", "ipywidgets==8.1.9", "anywidget==0.11.0"),
        *("bokeh==3.9.2", "ipyparallel==9.2.0", "jupyterlab==4.6.6", "jupyterlab_widgets==3.0.17"),
    )
    (made.root / "dev").mkdir()
    (made.root / "dev/shm").symlink_to("/dev/shm")
    for name in ("hpu_magic", "anywidget", "@jupyter-widgets/jupyterlab-manager"):
        package = {"version": hpu_magic.__version__}
        made.json_file(f"prefix/share/jupyter/labextensions/{name}/package.json", package)
    return made


@pytest.fixture
def faulty(healthy):
    """A machine with a harmful flag and without PyTorch."""
    (next(healthy.site.glob("torch-*")) / "METADATA").unlink()
    next(healthy.site.glob("torch-*")).rmdir()
    healthy.environment["ENABLE_CONSOLE"] = "1"
    return healthy


def test_report_of_a_machine_without_problems_is_short(healthy, golden):
    diagnosis = examine(healthy.machine)
    assert diagnosis.state == "green"
    golden("doctor_green", repr(diagnosis))


def test_report_shows_problems_and_fixes_first(faulty, golden, own_folder, monkeypatch):
    size = SimpleNamespace(f_frsize=1, f_blocks=16 * GIB, f_bavail=15 * GIB)
    monkeypatch.setattr(os, "statvfs", lambda folder: size)
    diagnosis = examine(faulty.machine)
    assert diagnosis.state == "red"
    golden("doctor", repr(diagnosis))
    everything = repr(examine(faulty.machine, everything=True))
    everything = everything.replace(str(faulty.root.parent), "FOLDER")
    golden("doctor_all", everything.replace(f"hpu_magic-{os.geteuid()}", "hpu_magic-UID"))
    assert "\x1b[31mred\x1b[0m, installed" in diagnosis.text(colours=True)


def test_html_folds_green_findings_and_escapes_names(faulty):
    faulty.environment["HABANA_LOGS"] = "/<b>"
    shown = examine(faulty.machine)._repr_html_()
    above, _, folded = shown.partition("<details>")
    assert "&rarr; Run `pip install torch`." in above
    assert "/&lt;b&gt;" in folded
    assert "<b>" not in folded
    assert "<details>" not in examine(faulty.machine, everything=True)._repr_html_()


def test_json_has_all_keys_and_findings(faulty):
    record = json.loads(json.dumps(examine(faulty.machine).to_dict()))
    findings = record.pop("findings")
    assert {key: type(value) for key, value in record.items()} == {
        "schema": int,
        "hpu_magic": str,
        "time": float,
        "simulated": bool,
        "state": str,
        "left_out": str,
    }
    assert (record["schema"], record["state"]) == (SCHEMA, "red")
    assert findings[2] == {
        "group": "installed",
        "check": "torch",
        "about": "torch",
        "state": "red",
        "text": "torch is not installed; the device requires it.",
        "fix": "Run `pip install torch`.",
        "values": {"version": None},
        "left_out": [],
    }
    assert {frozenset(finding) for finding in findings} == {frozenset(findings[2])}
    known = {(group, check.__name__) for group, checks in CHECKS.items() for check in checks}
    assert {(finding["group"], finding["check"]) for finding in findings} <= known
    for finding in findings:
        places = set(re.findall(r"\{(\w+)\}", finding["text"] + finding["fix"]))
        assert places <= set(finding["left_out"])


def test_json_has_no_names_folders_and_secrets(made, tmp_path):
    made.with_gaudi(cards=2)
    holder = Holder(41, "salary-forecast.ipynb", "ada")
    reason = "Cards of ada."
    cards = (card(0, holders=(holder,)), card(1, error="ada lost it"), card(2, used=50 * GIB))
    made.cards = Snapshot(cards, "hlml", reason)
    made.install("torch==2.9.0")
    made.folders.append(tmp_path / "ada")
    made.install("torch==2.10.0", into=tmp_path / "ada")
    made.file("/proc/71/stat")
    server = {"pid": 71, "hostname": "ada.host", "port": 8888, "base_url": "/user/ada/"}
    server["token"] = "s3cr3t"
    made.json_file("home/ada/.local/share/jupyter/runtime/jpserver-71.json", server)
    (made.home / ".habana_logs").mkdir()
    for name in (
        *("PT_HPU_RECIPE_CACHE_CONFIG", "QUANT_CONFIG", "PT_HPU_METRICS_FILE", "LOWER_LIST"),
        *("HABANA_VISIBLE_MODULES", "HABANA_VISIBLE_DEVICES", "PT_HPU_LAZY_MODE", "HLS_MODULE_ID"),
        *("PT_HPU_PLACE_ON_CPU", "PT_HPU_GRAPH_DUMP_MODE", "PT_HPU_USE_CPP_PARTITIONER"),
    ):
        made.environment[name] = "/home/ada/s3cr3t"
    made.environment["PT_HPU_METRICS_FILE"] = "ada"
    made.environment["https_proxy"] = "http://ada:s3cr3t@proxy.ada:3128"
    diagnosis = examine(made.machine)
    text, record = repr(diagnosis), json.dumps(diagnosis.to_dict(), indent=1)
    for private in ("/home/ada", "ada.host", "salary-forecast", str(tmp_path)):
        assert private in text or private in repr(examine(made.machine, everything=True))
    names = "ada", "s3cr3t", "salary", str(tmp_path)
    leaks = [found for name in names for found in re.findall(f".*{name}.*", record)]
    assert leaks == []


def test_check_that_cannot_read_a_file_reports_it(made, monkeypatch):
    made.file("/sys/bus/pci/devices/0000:01:00.0/vendor").unlink()
    (made.root / "sys/bus/pci/devices/0000:01:00.0/vendor").mkdir()
    texts = [finding.filled()[0] for finding in examine(made.machine).of("amber")]
    place = made.root / "sys/bus/pci/devices/0000:01:00.0/vendor"
    assert f"The check failed: Is a directory ({place})." in texts


def test_invalid_value_affects_no_other_finding(healthy):
    healthy.environment["HABANA_VISIBLE_MODULES"] = "9" * 5000
    diagnosis = examine(healthy.machine)
    [finding] = diagnosis.of("amber")
    assert finding.about == "visible modules"
    assert finding.filled()[0].startswith("The check failed because of an invalid value: ")
    assert diagnosis.of("red") == []


def test_invalid_unicode_is_escaped(healthy):
    healthy.environment["HABANA_LOGS"] = os.fsdecode(b"/tmp/\xff")
    shown = repr(examine(healthy.machine, everything=True))
    assert "HABANA_LOGS: No logs exist yet: the first process that acquires a card" in shown
    assert "creates /tmp/\\udcff." in shown


def command(*arguments, code="", isolated=(), stdout=subprocess.PIPE, **environment):
    program = f"{code}\nimport sys\nfrom hpu_magic import command_line\n"
    program += f"status = command_line.main(['doctor', *{arguments!r}])\n"
    program += f"loaded = [name for name in {CHECKED!r} if name in sys.modules]\n"
    program += "print('loaded', loaded, file=sys.stderr)\nsys.exit(status)"
    return subprocess.run(
        [sys.executable, *isolated, "-c", program],
        env={**os.environ, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )


def test_command_imports_no_checked_package():
    done = command("--json")
    assert done.stderr == "loaded []\n"
    record = json.loads(done.stdout)
    states = {finding["state"] for finding in record["findings"]}
    assert record["state"] == next(state for state in ("red", "amber", "green") if state in states)
    assert done.returncode == (record["state"] == "red")
    assert {finding["group"] for finding in record["findings"]} == set(GROUPS)
    # Fixes contain root and localhost.
    for private in {getpass.getuser(), socket.gethostname(), str(PROJECT)} - {"root", "localhost"}:
        assert not re.search(rf"\b{re.escape(private)}\b", done.stdout), private


def test_command_escapes_names_that_the_terminal_cannot_encode(tmp_path):
    variables = {"PYTHONIOENCODING": "ascii", "HABANA_LOGS": str(tmp_path / "prüfung")}
    done = command("--all", **variables)
    assert done.stderr == "loaded []\n"
    assert f"{tmp_path}/pr\\xfcfung" in done.stdout


def test_command_reports_that_it_cannot_write():
    with open("/dev/full", "w") as full:
        done = command(stdout=full)
    assert done.returncode == 2
    assert done.stderr == (
        "hpu-magic doctor: cannot write the findings: No space left on device.\nloaded []\n"
    )


def test_command_needs_neither_output_nor_home():
    code = """
import os, pwd, sys
def nobody(number):
    raise KeyError(number)
pwd.getpwuid = nobody
del os.environ["HOME"]
"""
    done = command("--json", code=code)
    assert done.stderr == "loaded []\n"
    record = json.loads(done.stdout)
    [home] = [finding for finding in record["findings"] if finding["about"] == "home"]
    assert (home["state"], home["values"]) == ("amber", {"writable": False})
    silent = command(code=f"{code}\nsys.stdout = None")
    assert (silent.returncode, silent.stdout, silent.stderr) == (
        done.returncode,
        "",
        "loaded []\n",
    )


def test_command_works_without_other_packages(tmp_path):
    import psutil

    (tmp_path / "psutil").symlink_to(Path(psutil.__file__).parent)
    alone = f"import sys; sys.path[:0] = [{str(PROJECT)!r}, {str(tmp_path)!r}]"
    done = command(code=alone, isolated=("-S", "-I"))
    assert (done.returncode, done.stderr) == (1, "loaded []\n")
    assert "red, installed\n  torch: torch is not installed" in done.stdout
    done = command("--json", code=alone, isolated=("-S", "-I"))
    absent = [
        finding["about"]
        for finding in json.loads(done.stdout)["findings"]
        if finding["check"] == "packages" and finding["values"]["version"] is None
    ]
    assert absent == [
        *("lightning", "ipywidgets", "anywidget", "bokeh", "jupyterlab", "ipyparallel"),
        *("transformers", "accelerate", "optimum-habana"),
    ]


def test_doctor_magic_supports_all_and_json(run, monkeypatch):
    monkeypatch.setenv("LOG_LEVEL_ALL", "0")
    shown = run("%hpu_doctor")
    assert shown.result.of("amber")[0].about in repr(shown.result)
    assert "LOG_LEVEL_ALL=0: logs at this level" in repr(shown.result)
    assert run("%hpu_doctor --all").result.everything
    assert run("%hpu_doctor --json -o found").out == ""
    cell = run("found")
    assert json.loads(repr(cell.result)) == cell.result
    findings = [each for each in cell.result["findings"] if each["about"] == "LOG_LEVEL_ALL"]
    assert [finding["values"] for finding in findings] == [{"value": "0"}]
    assert (
        "%hpu_doctor has no option '--jsn': type %hpu_doctor --json" in run("%hpu_doctor --jsn").err
    )


def test_documentation_lists_all_groups_and_keys(made):
    page = (PROJECT / "docs" / "doctor.md").read_text()
    record = examine(made.machine).to_dict()
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.M))))
    assert named == set(record) | set(record["findings"][0])
    groups = page.partition("| group | checks |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", groups, re.M) == list(CHECKS)
    assert f"| `schema` | {SCHEMA};" in page
