"""Test the checks of harmful flags, growing folders and Jupyter."""

import csv
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


# A variable of PyTorch and a variable of older releases.
UNDOCUMENTED = ["TORCH_DEVICE_BACKEND_AUTOLOAD", "PT_HPU_COMPILE_GRAPH_FREEZE"]


def default(name):
    flag = documented().get(name)
    return flag.default.lower() if flag else ""


def rows():
    with TABLE.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["name"])
def test_each_harmful_flag_is_reported(made, row):
    made.with_gaudi()
    name, kind = row["name"], row["values"]
    assert made.check(flags.harmful) == []
    made.environment[name] = GOOD.get(kind, "0")
    assert made.check(flags.harmful) == []
    bad = made.environment[name] = BAD.get(kind, kind.split()[0])
    [finding] = flags.harmful(made.machine)
    assert (finding.state, finding.filled()[0]) == (row["state"], f"{name}={bad}: {row['why']}.")


def test_no_default_is_harmful():
    known = documented()
    unknown = [row["name"] for row in rows() if row["name"] not in known]
    assert unknown == UNDOCUMENTED
    harmful = [row["name"] for row in rows() if flags._means(default(row["name"]), row["values"])]
    assert harmful == []


def test_flags_ignored_by_the_simulator_are_amber(made):
    made.environment |= {"PT_HPU_SYNC_LAUNCH": "1", "LOWER_LIST": "/x", "PT_HPU_AUTOLOAD": "0"}
    assert made.check(flags.harmful) == ["amber"] * 2


def test_flag_that_stops_results_is_red_on_the_simulator(made):
    made.environment["PT_COMPILE_ONLY_MODE"] = "1"
    assert made.check(flags.harmful) == ["red"]


def test_lowest_log_level_of_a_component_is_amber(made):
    made.environment |= {"LOG_LEVEL_PT_FALLBACK": "1", "LOG_LEVEL_SYN_API": "0"}
    assert made.check(flags.harmful) == ["amber"]


@pytest.mark.parametrize(
    ("value", "torch", "plugin", "state"),
    [
        (None, "2.7.1+git1", "1.22.0", "green"),
        ("0", "2.7.1+git1", "1.22.0", "green"),
        ("1", "2.7.1+git1", "1.22.0", "green"),
        ("1", "2.7.1", "1.22.0", "red"),  # not Intel's build
        ("1", "2.11.0+hpu", "1.24.0", "amber"),
        ("2", "2.7.1+git1", "1.22.0", "amber"),
        ("false", "2.7.1+git1", "1.22.0", "amber"),
    ],
)
def test_lazy_mode_is_checked_against_torch_and_release(made, value, torch, plugin, state):
    made.with_gaudi(plugin)
    made.install(f"torch=={torch}")
    if value is not None:
        made.environment["PT_HPU_LAZY_MODE"] = value
    assert made.check(flags.lazy_mode) == [state]


def test_unset_mode_is_amber_with_libraries_that_assume_lazy_mode(made):
    made.with_gaudi()
    made.install("accelerate==1.15.0", "optimum-habana==1.21.0")
    assert made.check(flags.lazy_mode) == ["amber"]
    made.environment["PT_HPU_LAZY_MODE"] = "0"
    assert made.check(flags.lazy_mode) == ["green"]


@pytest.mark.parametrize(
    ("check", "name", "good", "bad", "state"),
    [
        (flags.integers, "PT_ENABLE_INT64_SUPPORT", "0", "1", "amber"),
        (flags.fallbacks, "PT_HPU_PLACE_ON_CPU", "", "none", "amber"),
        (flags.pool, "PT_HPU_POOL_MEM_ACQUIRE_PERC", "100", "40", "amber"),
        (flags.metrics_file, "PT_HPU_METRICS_FILE", "/x/m.json", "m.json", "amber"),
        (flags.strict, "PT_HPU_USE_CPP_PARTITIONER", "yes", "2", "red"),
    ],
)
def test_invalid_values_of_single_flags_are_reported(made, check, name, good, bad, state):
    made.with_gaudi()
    assert made.check(check) == []
    made.environment[name] = good
    assert made.check(check) == []
    made.environment[name] = bad
    assert made.check(check) == [state]


def test_unreadable_file_of_a_flag_is_amber(made, tmp_path):
    assert made.check(flags.files) == []
    made.environment["PT_HPU_AUTOCAST_FP32_OPS_LIST"] = str(tmp_path / "ops.txt")
    assert made.check(flags.files) == ["amber"]
    (tmp_path / "ops.txt").write_text("add\n")
    assert made.check(flags.files) == ["green"]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        *[("0,1", "green"), ("0", "green"), ("0,1,2", "amber")],
        *[("0,7", "red"), ("", "red"), ("all", "red")],
    ],
)
def test_visible_modules_must_name_existing_cards(made, value, state):
    made.with_gaudi(cards=4)
    assert made.check(flags.visible_modules) == []
    made.environment["HABANA_VISIBLE_MODULES"] = value
    assert made.check(flags.visible_modules) == [state]


def test_chosen_module_must_be_visible(made):
    made.with_gaudi(cards=4)
    made.environment["HLS_MODULE_ID"] = "3"
    assert made.check(flags.chosen_module) == []
    made.environment["HABANA_VISIBLE_MODULES"] = "0,1"
    assert made.check(flags.chosen_module) == ["amber"]


@pytest.mark.parametrize(
    ("value", "state"), [("0,1", "green"), ("0,6", "amber"), ("none", "amber")]
)
def test_visible_devices_must_name_existing_cards(made, value, state):
    made.with_gaudi(cards=2)
    made.environment["HABANA_VISIBLE_DEVICES"] = "all"
    assert made.check(flags.visible_devices) == []
    made.environment["HABANA_VISIBLE_DEVICES"] = value
    assert made.check(flags.visible_devices) == [state]


def cache(made, folder, rest=""):
    made.environment["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{folder}{rest}"
    return made.check(storage.recipe_cache)


def test_missing_recipe_cache_is_green(made):
    assert made.check(storage.recipe_cache) == ["green"]
    assert cache(made, "", ",false,1024,false") == ["green"]


def test_missing_or_full_recipe_cache_is_reported(made, tmp_path):
    folder = tmp_path / "recipes"
    assert cache(made, folder) == ["amber"]
    folder.mkdir()
    (folder / "one").write_bytes(bytes(600 << 10))
    assert cache(made, folder, ",false,10") == ["green"]
    (folder / "two").write_bytes(bytes(400 << 10))
    assert cache(made, folder, ",false,1") == ["amber"]
    assert cache(made, folder / "one") == ["red"]


def test_recipe_cache_emptied_by_each_process_is_amber(made, tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    assert cache(made, folder, ",true,1024") == ["green", "amber"]


def test_recipe_cache_on_a_shared_file_system_is_amber(made, tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    made.file("/proc/mounts", f"/dev/sda / ext4 rw 0 0\nserver:/x {folder} nfs4 rw 0 0\n")
    assert cache(made, folder, ",false,1024,false") == ["green", "amber"]
    assert cache(made, folder, ",false,1024,true") == ["green"]


@pytest.mark.parametrize("rest", [",maybe,1024", ",false,much", ",false,1024,nfs"])
def test_recipe_cache_with_an_invalid_field_is_red(made, tmp_path, rest):
    assert cache(made, tmp_path, rest) == ["red"]


def test_older_variables_of_the_recipe_cache_are_checked(made, tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    made.environment |= {"PT_RECIPE_CACHE_PATH": str(folder), "PT_CACHE_FOLDER_DELETE": "true"}
    assert made.check(storage.recipe_cache) == ["green", "amber"]


def test_large_logs_are_amber(made, tmp_path):
    default = made.home / ".habana_logs"
    assert made.check(storage.logs) == ["green"]
    default.mkdir()
    (default / "new.log").write_bytes(bytes(1 << 20))
    (default / "old.log").write_bytes(bytes(3 << 20))
    long_ago = time.time() - 3 * 86400
    os.utime(default / "old.log", (long_ago, long_ago))
    assert made.check(storage.logs) == ["green"]
    with (default / "huge.log").open("wb") as log:  # a sparse file
        log.truncate(11 << 30)
    assert made.check(storage.logs) == ["amber"]


def test_log_folder_depends_on_container_and_variable(made, tmp_path):
    (made.root / "var/log/habana_logs").mkdir(parents=True)
    made.file("/.dockerenv")
    made.check(storage.logs)
    assert "root/var/log/habana_logs contains 0 B in 0 files" in made.texts[-1]
    made.environment["HABANA_LOGS"] = str(tmp_path / "mine")
    made.check(storage.logs)
    assert made.texts[-1].endswith(f"creates {tmp_path / 'mine'}.")


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({}, "green"),
        (
            {"HTTPS_PROXY": "http://ada:pw@proxy:1", "NO_PROXY": "127.0.0.1, localhost,.intra"},
            "green",
        ),
        ({"ALL_PROXY": "socks5://proxy:1", "no_proxy": "localhost,127.0.0.0/8"}, "green"),
        ({"ALL_PROXY": "socks5://proxy:1", "no_proxy": "*"}, "green"),
        ({"http_proxy": "http://ada:pw@proxy:1", "no_proxy": "localhost"}, "amber"),
    ],
)
def test_proxy_for_local_connections_is_amber(made, environment, state):
    made.environment |= environment
    assert made.check(jupyter.proxy_variables) == [state]


def server(made, **entries):
    record = {"pid": 71, "hostname": "localhost", "port": 8888, "base_url": "/", "token": "s3"}
    record |= {"password": False, "sock": ""} | entries
    made.json_file("home/ada/.local/share/jupyter/runtime/jpserver-71.json", record)
    return made.check(jupyter.servers)


def test_server_without_a_token_is_reported(made):
    assert made.check(jupyter.servers) == ["green"]
    assert server(made) == ["green"]  # a server that has ended
    made.file("/proc/71/stat")
    assert server(made) == ["green", "green"]
    assert server(made, token="")[0] == "amber"
    assert server(made, token="", hostname="0.0.0.0")[0] == "red"


def test_base_url_that_differs_from_the_hub_is_amber(made):
    made.file("/proc/71/stat")
    assert server(made, base_url="/team/ada/")[1] == "amber"
    made.environment |= {"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/", "JPY_PARENT_PID": "71"}
    assert server(made, base_url="/team/ada/")[1] == "amber"
    own = {"base_url": "/user/ada/", "token": "", "hostname": "0.0.0.0"}
    assert server(made, **own) == ["green", "green"]


def extension(made, name, version, place="prefix/share/jupyter"):
    made.json_file(f"{place}/labextensions/{name}/package.json", {"name": name, "version": version})


def page_config(made, disabled):
    made.json_file(
        "prefix/etc/jupyter/labconfig/page_config.json", {"disabledExtensions": disabled}
    )


def server_config(enabled):
    return {"ServerApp": {"jpserver_extensions": {"hpu_magic": enabled}}}


def test_missing_or_disabled_front_end_extension_is_reported(made):
    assert made.check(jupyter.front_end) == []
    made.install("jupyterlab==4.6.6")
    assert made.check(jupyter.front_end) == ["amber"] * 3
    extension(made, "hpu_magic", hpu_magic.__version__)
    extension(made, "@jupyter-widgets/jupyterlab-manager", "5.0.16")
    extension(made, "anywidget", "0.11.0")
    assert made.check(jupyter.front_end) == ["green"] * 3
    for disabled in ({"hpu_magic": True}, ["hpu_magic"], {"hpu_magic:sidebar": True}):
        page_config(made, disabled)
        assert made.check(jupyter.front_end) == ["red", "green", "green"]
    page_config(made, {"hpu_magic": False})
    assert made.check(jupyter.front_end) == ["green"] * 3


def test_old_front_end_is_amber(made):
    made.install("jupyterlab==3.6.8", "notebook==7.1.3")
    assert made.check(jupyter.front_end)[:2] == ["amber", "amber"]


def test_front_end_with_precedence_is_checked(made):
    made.install("jupyterlab==4.6.6")
    extension(made, "hpu_magic", hpu_magic.__version__)
    extension(made, "hpu_magic", "0.0.9", "home/ada/.local/share/jupyter")
    assert made.check(jupyter.front_end)[0] == "amber"  # the user's extension comes first
    (made.prefix / "pyvenv.cfg").touch()
    assert made.check(jupyter.front_end)[0] == "green"  # the virtual environment's comes first
    made.environment["JUPYTER_PREFER_ENV_PATH"] = "0"
    assert made.check(jupyter.front_end)[0] == "amber"
    made.environment |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_PATH": f"{made.home}/x"}
    assert made.check(jupyter.front_end)[0] == "green"
    extension(made, "hpu_magic", "0.0.9", "home/ada/x")
    assert made.check(jupyter.front_end)[0] == "amber"


def test_disabled_server_extension_is_red(made):
    assert made.check(jupyter.server_extension) == []
    made.install("jupyter_server==2.21.1")
    assert made.check(jupyter.server_extension) == ["amber"]
    for place, enabled, state in [
        ("prefix/etc/jupyter", True, "green"),
        ("home/ada/.jupyter", False, "red"),
    ]:
        made.json_file(f"{place}/jupyter_server_config.d/hpu_magic.json", server_config(enabled))
        assert made.check(jupyter.server_extension) == [state]
    # The file that `jupyter server extension enable` writes takes precedence over installed files.
    made.json_file("home/ada/.jupyter/jupyter_server_config.json", server_config(True))
    assert made.check(jupyter.server_extension) == ["green"]


@pytest.mark.parametrize(
    ("python", "page", "state"),
    [
        ("ipywidgets==8.1.9", "jupyterlab_widgets==3.0.17", "green"),
        ("ipywidgets==8.1.9", "jupyterlab_widgets==1.1.1", "red"),
        ("bokeh==3.9.2", "jupyter_bokeh==4.1.0", "green"),
        ("bokeh==3.9.2", "jupyter_bokeh==3.0.7", "red"),
        ("bokeh==4.0.0", "jupyter_bokeh==4.1.0", "amber"),
    ],
)
def test_versions_of_widget_packages_must_match(made, python, page, state):
    made.install(python)
    assert made.check(jupyter.widget_halves) == []
    made.install(page)
    assert made.check(jupyter.widget_halves) == [state]


def test_invalid_files_of_jupyter_are_ignored(made):
    made.install("jupyterlab==4.6.6")
    for text in ("{", "[]", "\ud800".encode("utf-8", "replace").decode()):
        folder = made.prefix / "share/jupyter/labextensions/hpu_magic"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(text)
        assert made.check(jupyter.front_end)[0] == "amber"


@pytest.mark.parametrize("content", [None, 3, "hpu_magic", [3, None], {"ServerApp": 3}])
def test_files_with_other_types_are_ignored(made, content):
    made.install("jupyterlab==4.6.6", "jupyter_server==2.21.1")
    extension(made, "hpu_magic", hpu_magic.__version__)
    page_config(made, content)
    assert made.check(jupyter.front_end)[0] == "green"
    made.json_file("prefix/etc/jupyter/jupyter_server_config.d/hpu_magic.json", content)
    assert made.check(jupyter.server_extension) == ["amber"]


def test_names_of_checks_are_unique():
    names = [check.__name__ for group in checks.CHECKS.values() for check in group]
    assert len(names) == len(set(names))
