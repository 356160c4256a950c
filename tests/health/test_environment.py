"""Flags that hurt, folders that fill, and what is between Jupyter's page, server and kernel."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pytest

import hpu_magic
from hpu_magic.health import checks
from hpu_magic.health.checks import flags, jupyter, storage
from hpu_magic.runtime.execution.flags import documented

TABLE = Path(flags.__file__).with_suffix(".tsv")
GOOD = {"on": "0", "off": "1", "set": "", "positive": "0", "0 1": "4"}
BAD = {"on": "true", "off": "0", "set": "x", "positive": "2", "0 1": "1"}


# PyTorch's own, and one of older releases.
UNDOCUMENTED = ["TORCH_DEVICE_BACKEND_AUTOLOAD", "PT_HPU_COMPILE_GRAPH_FREEZE"]


def default(name):
    flag = documented().get(name)
    return flag.default.lower() if flag else ""


def rows():
    with TABLE.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_a_flag_that_hurts(made, row):
    made.with_gaudi()
    name, kind = row["name"], row["values"]
    assert made.ask(flags.hurtful) == []
    made.environment[name] = GOOD.get(kind, "0")
    assert made.ask(flags.hurtful) == []
    bad = made.environment[name] = BAD.get(kind, kind.split()[0])
    assert made.ask(flags.hurtful) == [(row["state"], f"{name}={bad}: {row['why']}.")]


def test_no_default_hurts():
    known = documented()
    unknown = [row["name"] for row in rows() if row["name"] not in known]
    assert unknown == UNDOCUMENTED
    hurting = [row["name"] for row in rows() if flags._means(default(row["name"]), row["values"])]
    assert hurting == []


def test_flags_of_which_the_simulator_takes_no_notice(made):
    made.environment |= {"PT_HPU_SYNC_LAUNCH": "1", "LOWER_LIST": "/x", "PT_HPU_AUTOLOAD": "0"}
    made.environment["PT_COMPILE_ONLY_MODE"] = "1"
    assert made.ask(flags.hurtful) == [
        (
            "amber",
            "PT_HPU_SYNC_LAUNCH=1: the host waits for the card after every launch, which is for "
            "finding errors. On a card, that is: the simulator takes no notice.",
        ),
        (
            "amber",
            "PT_COMPILE_ONLY_MODE=1: graphs are compiled and never run: results are whatever was "
            "in memory. On a card, that is: the simulator takes no notice.",
        ),
        ("amber", "PT_HPU_AUTOLOAD=0: `import torch` does not bring the hpu device."),
    ]


def test_logs_of_one_part_at_the_finest_level(made):
    made.environment |= {"LOG_LEVEL_PT_FALLBACK": "1", "LOG_LEVEL_SYN_API": "0"}
    said = "LOG_LEVEL_SYN_API=0: that part logs all it does, which fills disks and slows it down."
    assert made.ask(flags.hurtful) == [("amber", said)]


@pytest.mark.parametrize(
    ("value", "torch", "plugin", "state", "part"),
    [
        (None, "2.7.1+git1", "1.22.0", "green", "is not set: the default"),
        ("0", "2.7.1+git1", "1.22.0", "green", "asks for eager mode"),
        ("1", "2.7.1+git1", "1.22.0", "green", "asks for lazy mode"),
        ("1", "2.7.1", "1.22.0", "red", "torch 2.7.1 is not Intel's build: lazy mode refuses it"),
        ("1", "2.11.0+hpu", "1.24.0", "amber", "may have lazy mode no more"),
        ("2", "2.7.1+git1", "1.22.0", "amber", "is no documented value"),
        ("false", "2.7.1+git1", "1.22.0", "amber", "all but 0 may be taken as lazy"),
    ],
)
def test_lazy_mode(made, value, torch, plugin, state, part):
    made.with_gaudi(plugin)
    made.install(f"torch=={torch}")
    if value is not None:
        made.environment["PT_HPU_LAZY_MODE"] = value
    [(found, text)] = made.ask(flags.lazy_mode)
    assert (found, part in text) == (state, True)


def test_libraries_that_take_an_unset_mode_to_be_lazy(made):
    made.with_gaudi()
    made.install("accelerate==1.15.0", "optimum-habana==1.21.0")
    said = (
        "PT_HPU_LAZY_MODE is not set: the bridge takes eager mode, and optimum-habana and "
        "accelerate may take it to be lazy."
    )
    assert made.ask(flags.lazy_mode) == [("amber", said)]
    made.environment["PT_HPU_LAZY_MODE"] = "0"
    said = "PT_HPU_LAZY_MODE=0 asks for eager mode."
    assert made.ask(flags.lazy_mode) == [("green", said)]


@pytest.mark.parametrize(
    ("check", "name", "good", "bad", "state", "part"),
    [
        (
            *(flags.integers, "PT_ENABLE_INT64_SUPPORT", "0", "1"),
            *("amber", "some models are reported to hang"),
        ),
        (flags.fallbacks, "PT_HPU_PLACE_ON_CPU", "", "none", "amber", "no operator may fall back"),
        (flags.pool, "PT_HPU_POOL_MEM_ACQUIRE_PERC", "100", "40", "amber", "have 40 % of a card's"),
        (flags.metrics_file, "PT_HPU_METRICS_FILE", "/x/m.json", "m.json", "amber", "no folder"),
        (
            *(flags.strict, "PT_HPU_USE_CPP_PARTITIONER", "yes", "2"),
            *("red", "is neither 1 nor 0: the compile backend fails to load."),
        ),
    ],
)
def test_single_flags(made, check, name, good, bad, state, part):
    made.with_gaudi()
    assert made.ask(check) == []
    made.environment[name] = good
    assert made.ask(check) == []
    made.environment[name] = bad
    [(found, text)] = made.ask(check)
    assert (found, text.startswith(name), part in text) == (state, True, True)


def test_files_that_flags_name(made, tmp_path):
    name = "PT_HPU_AUTOCAST_FP32_OPS_LIST"
    assert made.ask(flags.files) == []
    made.environment[name] = str(tmp_path / "ops.txt")
    said = f"{name} names {tmp_path}/ops.txt, which cannot be read: the default list of autocast"
    assert made.ask(flags.files) == [("amber", f"{said} holds.")]
    (tmp_path / "ops.txt").write_text("add\n")
    assert made.ask(flags.files) == [("green", f"{name} names a file that can be read.")]


@pytest.mark.parametrize(
    ("value", "state", "part"),
    [
        ("0,1", "green", "names cards that are here"),
        ("0", "green", "names cards that are here"),
        ("0,1,2", "amber", "collectives among 3 cards may fail"),
        ("0,7", "red", "names 7, which this machine has not"),
        ("", "red", "is no list of numbers"),
        ("all", "red", "is no list of numbers"),
    ],
)
def test_visible_modules(made, value, state, part):
    made.with_gaudi(cards=4)
    assert made.ask(flags.visible_modules) == []
    made.environment["HABANA_VISIBLE_MODULES"] = value
    [(found, text)] = made.ask(flags.visible_modules)
    assert (found, part in text) == (state, True)


def test_the_chosen_module(made):
    made.with_gaudi(cards=4)
    made.environment["HLS_MODULE_ID"] = "3"
    assert made.ask(flags.chosen_module) == []
    made.environment["HABANA_VISIBLE_MODULES"] = "0,1"
    said = "HLS_MODULE_ID=3 is none of the cards that this process may take (0, 1): another one is "
    assert made.ask(flags.chosen_module) == [("amber", f"{said}taken, or none.")]


@pytest.mark.parametrize(
    ("value", "state", "part"),
    [
        ("0,1", "green", "names cards that are here"),
        (
            "0,6",
            "amber",
            "names 6, and 2 cards are seen here; they may be absent, or numbered anew",
        ),
        ("none", "amber", "may give the container no card"),
    ],
)
def test_visible_devices(made, value, state, part):
    made.with_gaudi(cards=2)
    made.environment["HABANA_VISIBLE_DEVICES"] = "all"
    assert made.ask(flags.visible_devices) == []
    made.environment["HABANA_VISIBLE_DEVICES"] = value
    [(found, text)] = made.ask(flags.visible_devices)
    assert (found, part in text) == (state, True)


def cache(made, folder, rest=""):
    made.environment["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{folder}{rest}"
    return made.ask(storage.recipe_cache)


def test_no_recipe_cache(made):
    said = "Compiled graphs are kept in memory only: each process compiles its own."
    assert made.ask(storage.recipe_cache) == [("green", said)]
    assert cache(made, "", ",false,1024,false") == [("green", said)]


def test_the_recipe_cache(made, tmp_path):
    folder = tmp_path / "recipes"
    said = f"The folder {folder} of PT_HPU_RECIPE_CACHE_CONFIG does not exist yet; the bridge may "
    assert cache(made, folder) == [("amber", f"{said}not make it.")]
    folder.mkdir()
    (folder / "one").write_bytes(bytes(600 << 10))
    said = f"{folder} has 600 KiB in 1 file of compiled graphs, at most"
    assert cache(made, folder, ",false,10") == [("green", f"{said} 10 MiB.")]
    (folder / "two").write_bytes(bytes(400 << 10))
    [(state, text)] = cache(made, folder, ",false,1")
    assert (state, "It is nearly full" in text) == ("amber", True)
    [(state, text)] = cache(made, folder / "one")
    assert (state, text.endswith("is a file.")) == ("red", True)


def test_a_recipe_cache_that_is_emptied_at_each_start(made, tmp_path):
    [(_, _), (state, text)] = cache(made, tmp_path, ",true,1024")
    assert state == "amber"
    assert text.startswith(f"PT_HPU_RECIPE_CACHE_CONFIG has {tmp_path} emptied at the start")


def test_a_recipe_cache_on_a_shared_file_system(made, tmp_path):
    made.file("/proc/mounts", f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    [(_, _), (state, text)] = cache(made, tmp_path, ",false,1024,false")
    assert (state, "is on a shared file system (nfs4)" in text) == ("amber", True)
    assert [state for state, _ in cache(made, tmp_path, ",false,1024,true")] == ["green"]


@pytest.mark.parametrize("rest", [",maybe,1024", ",false,much", ",false,1024,nfs"])
def test_a_recipe_cache_without_meaning(made, tmp_path, rest):
    [(state, text)] = cache(made, tmp_path, rest)
    assert (state, text.startswith("PT_HPU_RECIPE_CACHE_CONFIG has ")) == ("red", True)


def test_the_older_spelling_of_the_recipe_cache(made, tmp_path):
    made.environment |= {"PT_RECIPE_CACHE_PATH": str(tmp_path), "PT_CACHE_FOLDER_DELETE": "true"}
    [(_, _), (state, text)] = made.ask(storage.recipe_cache)
    assert (state, text.startswith("PT_RECIPE_CACHE_PATH has")) == ("amber", True)


def test_logs(made, tmp_path):
    default = made.home / ".habana_logs"
    said = f"There are no logs yet: {default} is made by the first process that takes a card."
    assert made.ask(storage.logs) == [("green", said)]
    default.mkdir()
    (default / "new.log").write_bytes(bytes(1 << 20))
    (default / "old.log").write_bytes(bytes(3 << 20))
    long_ago = time.time() - 3 * 86400
    os.utime(default / "old.log", (long_ago, long_ago))
    [(state, text)] = made.ask(storage.logs)
    said = f"{default} has 4.00 MiB in 2 files, 1.00 MiB of it in files written within a day; "
    assert (state, text.startswith(said)) == ("green", True)
    with (default / "huge.log").open("wb") as log:  # a hole takes no room
        log.truncate(11 << 30)
    [(state, text)] = made.ask(storage.logs)
    assert (state, "11.0 GiB in 3 files" in text) == ("amber", True)


def test_logs_of_a_container_and_by_their_variable(made, tmp_path):
    folder = made.root / "var/log/habana_logs"
    folder.mkdir(parents=True)
    made.file("/.dockerenv")
    [(_, text)] = made.ask(storage.logs)
    assert text.startswith(f"{folder} has 0 B in 0 files")
    made.environment["HABANA_LOGS"] = str(tmp_path / "mine")
    [(_, text)] = made.ask(storage.logs)
    assert text.startswith(f"There are no logs yet: {tmp_path / 'mine'} is made")


@pytest.mark.parametrize(
    ("environment", "state", "said"),
    [
        ({}, "green", "No proxy variables are set."),
        (
            {"HTTPS_PROXY": "http://ada:pw@proxy:1", "NO_PROXY": "127.0.0.1, localhost,.intra"},
            *("green", "With HTTPS_PROXY set, NO_PROXY spares this machine's own servers."),
        ),
        (
            {"ALL_PROXY": "socks5://proxy:1", "no_proxy": "localhost,127.0.0.0/8"},
            *("green", "With ALL_PROXY set, NO_PROXY spares this machine's own servers."),
        ),
        (
            {"ALL_PROXY": "socks5://proxy:1", "no_proxy": "*"},
            *("green", "With ALL_PROXY set, NO_PROXY spares this machine's own servers."),
        ),
        (
            {"http_proxy": "http://ada:pw@proxy:1", "no_proxy": "localhost"},
            "amber",
            "HTTP_PROXY may send what is meant for 127.0.0.1 to the proxy: what asks a server, "
            "TensorBoard or rank on this machine then waits or fails.",
        ),
    ],
)
def test_proxy_variables(made, environment, state, said):
    made.environment |= environment
    assert made.ask(jupyter.proxy_variables) == [(state, said)]


def server(made, **told):
    folder = made.home / ".local/share/jupyter/runtime"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"pid": 71, "hostname": "localhost", "port": 8888, "base_url": "/", "token": "s3"}
    record |= {"password": False, "sock": ""} | told
    (folder / "jpserver-71.json").write_text(json.dumps(record))
    return made.ask(jupyter.servers)


def test_jupyter_servers(made):
    said = "No Jupyter server of this user is running here."
    assert made.ask(jupyter.servers) == [("green", said)]
    assert server(made) == [("green", said)]  # a server that has ended
    made.file("/proc/71/stat")
    asks = ("green", "The server at localhost:8888 asks for a token or a password.")
    assert server(made) == [asks, ("green", "The server is reached below /.")]
    [(state, text), _] = server(made, token="")
    assert (state, "from this machine may run code as you" in text) == ("amber", True)
    [(state, text), _] = server(made, token="", hostname="0.0.0.0")
    assert (state, "over the network may run code as you" in text) == ("red", True)


def test_what_stands_before_a_server(made):
    made.file("/proc/71/stat")
    [_, (state, text)] = server(made, base_url="/team/ada/")
    assert state == "amber"
    assert text.startswith("The server answers below /team/ada/, as behind a proxy, which may hold")
    made.environment |= {"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/", "JPY_PARENT_PID": "71"}
    [_, (state, text)] = server(made, base_url="/team/ada/")
    assert (state, "pages may not find it" in text) == ("amber", True)
    entry = ("green", "The server at 0.0.0.0:8888 leaves it to the hub who may enter.")
    way = ("green", "The server is reached below /user/ada/.")
    assert server(made, base_url="/user/ada/", token="", hostname="0.0.0.0") == [entry, way]


def extension(made, name, version, place="prefix/share/jupyter"):
    folder = made.prefix.parent / place / "labextensions" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))


def page_config(made, disabled):
    folder = made.prefix / "etc/jupyter/labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))


def test_the_front_ends_extensions(made):
    assert made.ask(jupyter.front_end) == []
    made.install("jupyterlab==4.6.6")
    assert [state for state, _ in made.ask(jupyter.front_end)] == ["amber"] * 3
    extension(made, "hpu_magic", hpu_magic.__version__)
    extension(made, "@jupyter-widgets/jupyterlab-manager", "5.0.16")
    extension(made, "anywidget", "0.11.0")
    manager = "JupyterLab has the extension @jupyter-widgets/jupyterlab-manager 5.0.16, turned on."
    widgets = ("green", "JupyterLab has the extension anywidget 0.11.0, turned on.")
    said = f"JupyterLab has the extension hpu_magic {hpu_magic.__version__}, turned on."
    assert made.ask(jupyter.front_end) == [("green", said), ("green", manager), widgets]
    for disabled in ({"hpu_magic": True}, ["hpu_magic"], {"hpu_magic:sidebar": True}):
        page_config(made, disabled)
        [(state, text), *others] = made.ask(jupyter.front_end)
        assert (state, "hpu_magic is turned off" in text) == ("red", True)
        assert others == [("green", manager), widgets]
    page_config(made, {"hpu_magic": False})
    assert made.ask(jupyter.front_end)[0] == ("green", said)


def test_what_is_missing_in_an_old_front_end(made):
    made.install("jupyterlab==3.6.8", "notebook==7.1.3")
    missing = (
        "the sidebar, the status bar, the mode switch and charts of panels may be missing or "
        "broken in it; commands work."
    )
    assert made.ask(jupyter.front_end)[:2] == [
        ("amber", f"JupyterLab 3.6.8 is older than 4.2: {missing}"),
        ("amber", f"Notebook 7.1.3 is older than 7.2: {missing}"),
    ]


def test_which_of_two_front_ends_counts(made):
    made.install("jupyterlab==4.6.6")
    extension(made, "hpu_magic", hpu_magic.__version__)
    extension(made, "hpu_magic", "0.0.9", "home/ada/.local/share/jupyter")
    old = f"The extension in JupyterLab is 0.0.9, and hpu_magic {hpu_magic.__version__}: they may "
    old = ("amber", f"{old}not understand each other.")
    new = f"JupyterLab has the extension hpu_magic {hpu_magic.__version__}, turned on."
    assert made.ask(jupyter.front_end)[0] == old  # the user's comes first
    (made.prefix / "pyvenv.cfg").touch()
    assert made.ask(jupyter.front_end)[0] == ("green", new)  # but not in a virtual environment
    made.environment["JUPYTER_PREFER_ENV_PATH"] = "0"
    assert made.ask(jupyter.front_end)[0] == old
    made.environment |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_PATH": f"{made.home}/x"}
    assert made.ask(jupyter.front_end)[0] == ("green", new)
    extension(made, "hpu_magic", "0.0.9", "home/ada/x")
    assert made.ask(jupyter.front_end)[0] == old


def test_the_servers_extension(made):
    assert made.ask(jupyter.server_extension) == []
    made.install("jupyter_server==2.21.1")
    assert [state for state, _ in made.ask(jupyter.server_extension)] == ["amber"]
    for place, enabled, state in [
        ("prefix/etc/jupyter", True, "green"),
        ("home/ada/.jupyter", False, "red"),
    ]:
        folder = made.prefix.parent / place / "jupyter_server_config.d"
        folder.mkdir(parents=True)
        told = {"ServerApp": {"jpserver_extensions": {"hpu_magic": enabled}}}
        (folder / "hpu_magic.json").write_text(json.dumps(told))
        assert [found for found, _ in made.ask(jupyter.server_extension)] == [state]
    # What `jupyter server extension enable` writes comes before what an installation brings.
    told = {"ServerApp": {"jpserver_extensions": {"hpu_magic": True}}}
    (made.home / ".jupyter/jupyter_server_config.json").write_text(json.dumps(told))
    assert [found for found, _ in made.ask(jupyter.server_extension)] == ["green"]


@pytest.mark.parametrize(
    ("python", "page", "state", "part"),
    [
        ("ipywidgets==8.1.9", "jupyterlab_widgets==3.0.17", "green", "go together"),
        ("ipywidgets==8.1.9", "jupyterlab_widgets==1.1.1", "red", "needs jupyterlab_widgets 3"),
        ("bokeh==3.9.2", "jupyter_bokeh==4.1.0", "green", "go together"),
        ("bokeh==3.9.2", "jupyter_bokeh==3.0.7", "red", "needs jupyter_bokeh 4"),
        ("bokeh==4.0.0", "jupyter_bokeh==4.1.0", "amber", "is not known here"),
    ],
)
def test_halves_of_widgets(made, python, page, state, part):
    made.install(python)
    assert made.ask(jupyter.widget_halves) == []
    made.install(page)
    [(found, text)] = made.ask(jupyter.widget_halves)
    assert (found, part in text) == (state, True)


def test_broken_files_of_jupyter_are_as_none(made):
    made.install("jupyterlab==4.6.6")
    for text in ("{", "[]", "\ud800".encode("utf-8", "replace").decode()):
        folder = made.prefix / "share/jupyter/labextensions/hpu_magic"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(text)
        assert made.ask(jupyter.front_end)[0][0] == "amber"


@pytest.mark.parametrize("told", [None, 3, "hpu_magic", [3, None], {"ServerApp": 3}])
def test_files_of_another_form_are_as_none(made, told):
    made.install("jupyterlab==4.6.6", "jupyter_server==2.21.1")
    extension(made, "hpu_magic", hpu_magic.__version__)
    page_config(made, told)
    assert made.ask(jupyter.front_end)[0][0] == "green"
    folder = made.prefix / "etc/jupyter/jupyter_server_config.d"
    folder.mkdir(parents=True)
    (folder / "hpu_magic.json").write_text(json.dumps(told))
    assert [state for state, _ in made.ask(jupyter.server_extension)] == ["amber"]


def test_checks_have_names_of_their_own():
    names = [check.__name__ for group in checks.CHECKS.values() for check in group]
    assert len(names) == len(set(names))
