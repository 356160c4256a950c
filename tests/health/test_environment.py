"""Harmful flags, growing folders, and Jupyter."""

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


# A variable of PyTorch, and one of older releases.
UNDOCUMENTED = ["TORCH_DEVICE_BACKEND_AUTOLOAD", "PT_HPU_COMPILE_GRAPH_FREEZE"]


def default(name):
    flag = documented().get(name)
    return flag.default.lower() if flag else ""


def rows():
    with TABLE.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_harmful_flag(made, row):
    made.with_gaudi()
    name, kind = row["name"], row["values"]
    assert made.check(flags.harmful) == []
    made.environment[name] = GOOD.get(kind, "0")
    assert made.check(flags.harmful) == []
    bad = made.environment[name] = BAD.get(kind, kind.split()[0])
    assert made.check(flags.harmful) == [(row["state"], f"{name}={bad}: {row['why']}.")]


def test_no_default_is_harmful():
    known = documented()
    unknown = [row["name"] for row in rows() if row["name"] not in known]
    assert unknown == UNDOCUMENTED
    harmful = [row["name"] for row in rows() if flags._means(default(row["name"]), row["values"])]
    assert harmful == []


def test_flags_that_the_simulator_ignores(made):
    made.environment |= {"PT_HPU_SYNC_LAUNCH": "1", "LOWER_LIST": "/x", "PT_HPU_AUTOLOAD": "0"}
    made.environment["PT_COMPILE_ONLY_MODE"] = "1"
    assert made.check(flags.harmful) == [
        (
            "amber",
            "PT_HPU_SYNC_LAUNCH=1: the host waits for the card after each launch, which is useful "
            "only for debugging. This applies to cards only; the simulator ignores it.",
        ),
        (
            "amber",
            "PT_COMPILE_ONLY_MODE=1: graphs are compiled but do not run: results are undefined. "
            "This applies to cards only; the simulator ignores it.",
        ),
        ("amber", "PT_HPU_AUTOLOAD=0: `import torch` does not load the hpu device."),
    ]


def test_logs_of_one_component_at_the_lowest_level(made):
    made.environment |= {"LOG_LEVEL_PT_FALLBACK": "1", "LOG_LEVEL_SYN_API": "0"}
    message = (
        "LOG_LEVEL_SYN_API=0: that component logs everything, which fills disks and slows it down."
    )
    assert made.check(flags.harmful) == [("amber", message)]


@pytest.mark.parametrize(
    ("value", "torch", "plugin", "state", "part"),
    [
        (None, "2.7.1+git1", "1.22.0", "green", "is not set: the release's default"),
        ("0", "2.7.1+git1", "1.22.0", "green", "selects eager mode"),
        ("1", "2.7.1+git1", "1.22.0", "green", "selects lazy mode"),
        ("1", "2.7.1", "1.22.0", "red", "torch 2.7.1 is not Intel's build, which lazy"),
        ("1", "2.11.0+hpu", "1.24.0", "amber", "may have removed lazy mode"),
        ("2", "2.7.1+git1", "1.22.0", "amber", "is not a documented value"),
        ("false", "2.7.1+git1", "1.22.0", "amber", "any value but 0 may mean lazy"),
    ],
)
def test_lazy_mode(made, value, torch, plugin, state, part):
    made.with_gaudi(plugin)
    made.install(f"torch=={torch}")
    if value is not None:
        made.environment["PT_HPU_LAZY_MODE"] = value
    [(found, text)] = made.check(flags.lazy_mode)
    assert (found, part in text) == (state, True)


def test_libraries_that_assume_lazy_mode(made):
    made.with_gaudi()
    made.install("accelerate==1.15.0", "optimum-habana==1.21.0")
    message = (
        "PT_HPU_LAZY_MODE is not set: the bridge uses eager mode, but optimum-habana and "
        "accelerate may assume lazy mode."
    )
    assert made.check(flags.lazy_mode) == [("amber", message)]
    made.environment["PT_HPU_LAZY_MODE"] = "0"
    message = "PT_HPU_LAZY_MODE=0 selects eager mode."
    assert made.check(flags.lazy_mode) == [("green", message)]


@pytest.mark.parametrize(
    ("check", "name", "good", "bad", "state", "part"),
    [
        (
            *(flags.integers, "PT_ENABLE_INT64_SUPPORT", "0", "1"),
            *("amber", "users reported that some models hang"),
        ),
        (flags.fallbacks, "PT_HPU_PLACE_ON_CPU", "", "none", "amber", "no operator may fall back"),
        (flags.pool, "PT_HPU_POOL_MEM_ACQUIRE_PERC", "100", "40", "amber", "only 40 % of a card's"),
        (
            flags.metrics_file,
            "PT_HPU_METRICS_FILE",
            "/x/m.json",
            "m.json",
            "amber",
            "has no folder",
        ),
        (
            *(flags.strict, "PT_HPU_USE_CPP_PARTITIONER", "yes", "2"),
            *("red", "is neither 1 nor 0: the compile backend fails to load."),
        ),
    ],
)
def test_single_flags(made, check, name, good, bad, state, part):
    made.with_gaudi()
    assert made.check(check) == []
    made.environment[name] = good
    assert made.check(check) == []
    made.environment[name] = bad
    [(found, text)] = made.check(check)
    assert (found, text.startswith(name), part in text) == (state, True, True)


def test_files_that_flags_name(made, tmp_path):
    name = "PT_HPU_AUTOCAST_FP32_OPS_LIST"
    assert made.check(flags.files) == []
    made.environment[name] = str(tmp_path / "ops.txt")
    message = f"{name} names {tmp_path}/ops.txt, which cannot be read: autocast uses"
    assert made.check(flags.files) == [("amber", f"{message} its default list.")]
    (tmp_path / "ops.txt").write_text("add\n")
    assert made.check(flags.files) == [("green", f"{name} names a file that can be read.")]


@pytest.mark.parametrize(
    ("value", "state", "part"),
    [
        ("0,1", "green", "names cards of this machine"),
        ("0", "green", "names cards of this machine"),
        ("0,1,2", "amber", "collectives of 3 cards may fail"),
        ("0,7", "red", "names 7, which this machine does not have"),
        ("", "red", "is not a list of numbers"),
        ("all", "red", "is not a list of numbers"),
    ],
)
def test_visible_modules(made, value, state, part):
    made.with_gaudi(cards=4)
    assert made.check(flags.visible_modules) == []
    made.environment["HABANA_VISIBLE_MODULES"] = value
    [(found, text)] = made.check(flags.visible_modules)
    assert (found, part in text) == (state, True)


def test_the_chosen_module(made):
    made.with_gaudi(cards=4)
    made.environment["HLS_MODULE_ID"] = "3"
    assert made.check(flags.chosen_module) == []
    made.environment["HABANA_VISIBLE_MODULES"] = "0,1"
    message = "HLS_MODULE_ID=3 is not one of the cards that this process may use (0, 1): the "
    assert made.check(flags.chosen_module) == [
        ("amber", f"{message}process uses another card, or none.")
    ]


@pytest.mark.parametrize(
    ("value", "state", "part"),
    [
        ("0,1", "green", "names cards of this machine"),
        (
            "0,6",
            "amber",
            "names 6, but 2 cards are visible; they may be absent, or have other numbers",
        ),
        ("none", "amber", "may hide all cards"),
    ],
)
def test_visible_devices(made, value, state, part):
    made.with_gaudi(cards=2)
    made.environment["HABANA_VISIBLE_DEVICES"] = "all"
    assert made.check(flags.visible_devices) == []
    made.environment["HABANA_VISIBLE_DEVICES"] = value
    [(found, text)] = made.check(flags.visible_devices)
    assert (found, part in text) == (state, True)


def cache(made, folder, rest=""):
    made.environment["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{folder}{rest}"
    return made.check(storage.recipe_cache)


def test_no_recipe_cache(made):
    message = "Compiled graphs are stored in memory only: each process compiles its own."
    assert made.check(storage.recipe_cache) == [("green", message)]
    assert cache(made, "", ",false,1024,false") == [("green", message)]


def test_the_recipe_cache(made, tmp_path):
    folder = tmp_path / "recipes"
    message = f"The folder {folder} of PT_HPU_RECIPE_CACHE_CONFIG does not exist, and the bridge "
    assert cache(made, folder) == [("amber", f"{message}may not create it.")]
    folder.mkdir()
    (folder / "one").write_bytes(bytes(600 << 10))
    message = f"{folder} has 600 KiB in 1 file of compiled graphs; the limit is"
    assert cache(made, folder, ",false,10") == [("green", f"{message} 10 MiB.")]
    (folder / "two").write_bytes(bytes(400 << 10))
    [(state, text)] = cache(made, folder, ",false,1")
    assert (state, "It is nearly full" in text) == ("amber", True)
    [(state, text)] = cache(made, folder / "one")
    assert (state, text.endswith("is a file.")) == ("red", True)


def test_recipe_cache_that_each_process_empties(made, tmp_path):
    [(_, _), (state, text)] = cache(made, tmp_path, ",true,1024")
    assert state == "amber"
    assert text.startswith(f"PT_HPU_RECIPE_CACHE_CONFIG empties {tmp_path} at the start")


def test_recipe_cache_on_a_shared_file_system(made, tmp_path):
    made.file("/proc/mounts", f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    [(_, _), (state, text)] = cache(made, tmp_path, ",false,1024,false")
    assert (state, "is on a shared file system (nfs4)" in text) == ("amber", True)
    assert [state for state, _ in cache(made, tmp_path, ",false,1024,true")] == ["green"]


@pytest.mark.parametrize("rest", [",maybe,1024", ",false,much", ",false,1024,nfs"])
def test_recipe_cache_with_an_invalid_field(made, tmp_path, rest):
    [(state, text)] = cache(made, tmp_path, rest)
    assert (state, text.startswith("PT_HPU_RECIPE_CACHE_CONFIG has ")) == ("red", True)


def test_older_variables_of_the_recipe_cache(made, tmp_path):
    made.environment |= {"PT_RECIPE_CACHE_PATH": str(tmp_path), "PT_CACHE_FOLDER_DELETE": "true"}
    [(_, _), (state, text)] = made.check(storage.recipe_cache)
    assert (state, text.startswith("PT_RECIPE_CACHE_PATH empties")) == ("amber", True)


def test_logs(made, tmp_path):
    default = made.home / ".habana_logs"
    message = f"No logs exist yet: the first process that acquires a card creates {default}."
    assert made.check(storage.logs) == [("green", message)]
    default.mkdir()
    (default / "new.log").write_bytes(bytes(1 << 20))
    (default / "old.log").write_bytes(bytes(3 << 20))
    long_ago = time.time() - 3 * 86400
    os.utime(default / "old.log", (long_ago, long_ago))
    [(state, text)] = made.check(storage.logs)
    message = f"{default} has 4.00 MiB in 2 files, including 1.00 MiB in files written within a day"
    assert (state, text.startswith(message)) == ("green", True)
    with (default / "huge.log").open("wb") as log:  # a sparse file
        log.truncate(11 << 30)
    [(state, text)] = made.check(storage.logs)
    assert (state, "11.0 GiB in 3 files" in text) == ("amber", True)


def test_log_folder_of_a_container_and_of_the_variable(made, tmp_path):
    folder = made.root / "var/log/habana_logs"
    folder.mkdir(parents=True)
    made.file("/.dockerenv")
    [(_, text)] = made.check(storage.logs)
    assert text.startswith(f"{folder} has 0 B in 0 files")
    made.environment["HABANA_LOGS"] = str(tmp_path / "mine")
    [(_, text)] = made.check(storage.logs)
    assert text.endswith(f"creates {tmp_path / 'mine'}.")


@pytest.mark.parametrize(
    ("environment", "state", "message"),
    [
        ({}, "green", "No proxy variables are set."),
        (
            {"HTTPS_PROXY": "http://ada:pw@proxy:1", "NO_PROXY": "127.0.0.1, localhost,.intra"},
            *("green", "HTTPS_PROXY is set, and NO_PROXY excludes servers on this machine."),
        ),
        (
            {"ALL_PROXY": "socks5://proxy:1", "no_proxy": "localhost,127.0.0.0/8"},
            *("green", "ALL_PROXY is set, and NO_PROXY excludes servers on this machine."),
        ),
        (
            {"ALL_PROXY": "socks5://proxy:1", "no_proxy": "*"},
            *("green", "ALL_PROXY is set, and NO_PROXY excludes servers on this machine."),
        ),
        (
            {"http_proxy": "http://ada:pw@proxy:1", "no_proxy": "localhost"},
            "amber",
            "HTTP_PROXY may send connections to 127.0.0.1 through the proxy: connections to a "
            "server, TensorBoard or rank on this machine may hang or fail.",
        ),
    ],
)
def test_proxy_variables(made, environment, state, message):
    made.environment |= environment
    assert made.check(jupyter.proxy_variables) == [(state, message)]


def server(made, **entries):
    folder = made.home / ".local/share/jupyter/runtime"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"pid": 71, "hostname": "localhost", "port": 8888, "base_url": "/", "token": "s3"}
    record |= {"password": False, "sock": ""} | entries
    (folder / "jpserver-71.json").write_text(json.dumps(record))
    return made.check(jupyter.servers)


def test_jupyter_servers(made):
    message = "This user runs no Jupyter server on this machine."
    assert made.check(jupyter.servers) == [("green", message)]
    assert server(made) == [("green", message)]  # a server that has ended
    made.file("/proc/71/stat")
    access = ("green", "The server at localhost:8888 requires a token or a password.")
    assert server(made) == [access, ("green", "The server answers below /.")]
    [(state, text), _] = server(made, token="")
    assert (state, "from this machine can run code as you" in text) == ("amber", True)
    [(state, text), _] = server(made, token="", hostname="0.0.0.0")
    assert (state, "over the network can run code as you" in text) == ("red", True)


def test_proxy_in_front_of_a_server(made):
    made.file("/proc/71/stat")
    [_, (state, text)] = server(made, base_url="/team/ada/")
    assert state == "amber"
    assert text.startswith("The server answers below /team/ada/, probably through a proxy. A proxy")
    made.environment |= {"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/", "JPY_PARENT_PID": "71"}
    [_, (state, text)] = server(made, base_url="/team/ada/")
    assert (state, "pages may not reach it" in text) == ("amber", True)
    access = ("green", "JupyterHub controls access to the server at 0.0.0.0:8888.")
    path = ("green", "The server answers below /user/ada/.")
    assert server(made, base_url="/user/ada/", token="", hostname="0.0.0.0") == [access, path]


def extension(made, name, version, place="prefix/share/jupyter"):
    folder = made.prefix.parent / place / "labextensions" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"name": name, "version": version}))


def page_config(made, disabled):
    folder = made.prefix / "etc/jupyter/labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))


def test_front_end_extensions(made):
    assert made.check(jupyter.front_end) == []
    made.install("jupyterlab==4.6.6")
    assert [state for state, _ in made.check(jupyter.front_end)] == ["amber"] * 3
    extension(made, "hpu_magic", hpu_magic.__version__)
    extension(made, "@jupyter-widgets/jupyterlab-manager", "5.0.16")
    extension(made, "anywidget", "0.11.0")
    enabled, manager, widgets = (
        ("green", f"JupyterLab's extension {extension} is installed and enabled.")
        for extension in (
            f"hpu_magic {hpu_magic.__version__}",
            "@jupyter-widgets/jupyterlab-manager 5.0.16",
            "anywidget 0.11.0",
        )
    )
    assert made.check(jupyter.front_end) == [enabled, manager, widgets]
    for disabled in ({"hpu_magic": True}, ["hpu_magic"], {"hpu_magic:sidebar": True}):
        page_config(made, disabled)
        [(state, text), *others] = made.check(jupyter.front_end)
        assert (state, "hpu_magic is disabled" in text) == ("red", True)
        assert others == [manager, widgets]
    page_config(made, {"hpu_magic": False})
    assert made.check(jupyter.front_end)[0] == enabled


def test_old_front_end(made):
    made.install("jupyterlab==3.6.8", "notebook==7.1.3")
    missing = (
        "the sidebar, the status bar, the mode switch and the charts of panels may be missing or "
        "broken; commands work."
    )
    assert made.check(jupyter.front_end)[:2] == [
        ("amber", f"JupyterLab 3.6.8 is older than 4.2: {missing}"),
        ("amber", f"Notebook 7.1.3 is older than 7.2: {missing}"),
    ]


def test_precedence_of_two_front_ends(made):
    made.install("jupyterlab==4.6.6")
    extension(made, "hpu_magic", hpu_magic.__version__)
    extension(made, "hpu_magic", "0.0.9", "home/ada/.local/share/jupyter")
    old = f"JupyterLab's extension is 0.0.9, but hpu_magic is {hpu_magic.__version__}: they may be "
    old = ("amber", f"{old}incompatible.")
    new = f"JupyterLab's extension hpu_magic {hpu_magic.__version__} is installed and enabled."
    assert made.check(jupyter.front_end)[0] == old  # the user's comes first
    (made.prefix / "pyvenv.cfg").touch()
    assert made.check(jupyter.front_end)[0] == ("green", new)  # but not in a virtual environment
    made.environment["JUPYTER_PREFER_ENV_PATH"] = "0"
    assert made.check(jupyter.front_end)[0] == old
    made.environment |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_PATH": f"{made.home}/x"}
    assert made.check(jupyter.front_end)[0] == ("green", new)
    extension(made, "hpu_magic", "0.0.9", "home/ada/x")
    assert made.check(jupyter.front_end)[0] == old


def test_server_extension(made):
    assert made.check(jupyter.server_extension) == []
    made.install("jupyter_server==2.21.1")
    assert [state for state, _ in made.check(jupyter.server_extension)] == ["amber"]
    for place, enabled, state in [
        ("prefix/etc/jupyter", True, "green"),
        ("home/ada/.jupyter", False, "red"),
    ]:
        folder = made.prefix.parent / place / "jupyter_server_config.d"
        folder.mkdir(parents=True)
        config = {"ServerApp": {"jpserver_extensions": {"hpu_magic": enabled}}}
        (folder / "hpu_magic.json").write_text(json.dumps(config))
        assert [found for found, _ in made.check(jupyter.server_extension)] == [state]
    # The file of `jupyter server extension enable` has precedence over that of an installation.
    config = {"ServerApp": {"jpserver_extensions": {"hpu_magic": True}}}
    (made.home / ".jupyter/jupyter_server_config.json").write_text(json.dumps(config))
    assert [found for found, _ in made.check(jupyter.server_extension)] == ["green"]


@pytest.mark.parametrize(
    ("python", "page", "state", "part"),
    [
        ("ipywidgets==8.1.9", "jupyterlab_widgets==3.0.17", "green", "match."),
        ("ipywidgets==8.1.9", "jupyterlab_widgets==1.1.1", "red", "needs jupyterlab_widgets 3"),
        ("bokeh==3.9.2", "jupyter_bokeh==4.1.0", "green", "match."),
        ("bokeh==3.9.2", "jupyter_bokeh==3.0.7", "red", "needs jupyter_bokeh 4"),
        ("bokeh==4.0.0", "jupyter_bokeh==4.1.0", "amber", "may not match bokeh 4.0.0"),
    ],
)
def test_versions_of_widget_parts(made, python, page, state, part):
    made.install(python)
    assert made.check(jupyter.widget_halves) == []
    made.install(page)
    [(found, text)] = made.check(jupyter.widget_halves)
    assert (found, part in text) == (state, True)


def test_invalid_files_of_jupyter_are_ignored(made):
    made.install("jupyterlab==4.6.6")
    for text in ("{", "[]", "\ud800".encode("utf-8", "replace").decode()):
        folder = made.prefix / "share/jupyter/labextensions/hpu_magic"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(text)
        assert made.check(jupyter.front_end)[0][0] == "amber"


@pytest.mark.parametrize("content", [None, 3, "hpu_magic", [3, None], {"ServerApp": 3}])
def test_files_with_other_types_are_ignored(made, content):
    made.install("jupyterlab==4.6.6", "jupyter_server==2.21.1")
    extension(made, "hpu_magic", hpu_magic.__version__)
    page_config(made, content)
    assert made.check(jupyter.front_end)[0][0] == "green"
    folder = made.prefix / "etc/jupyter/jupyter_server_config.d"
    folder.mkdir(parents=True)
    (folder / "hpu_magic.json").write_text(json.dumps(content))
    assert [state for state, _ in made.check(jupyter.server_extension)] == ["amber"]


def test_names_of_checks_are_unique():
    names = [check.__name__ for group in checks.CHECKS.values() for check in group]
    assert len(names) == len(set(names))
