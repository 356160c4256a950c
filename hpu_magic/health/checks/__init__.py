"""All checks, grouped by topic; each check is a function that takes a `Machine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hpu_magic.health.checks import (
    cards,
    flags,
    host_memory,
    installed,
    jupyter,
    storage,
    user_folders,
    versions,
)
from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine

Check = Callable[[Machine], Iterator[Finding]]

CHECKS: Mapping[str, tuple[Check, ...]] = {
    "installed": (
        installed.python,
        installed.itself,
        installed.torch,
        installed.one_torch,
        installed.bridge,
        installed.packages,
    ),
    "versions": (
        versions.torch_for_hpu_magic,
        versions.torch_for_plugin,
        versions.plugin_and_driver,
        versions.firmware_and_driver,
        versions.first_generation,
        versions.lightning_habana,
        versions.optimum_habana,
        versions.vllm_plugin,
        versions.deepspeed,
        versions.gpu,
    ),
    "cards": (
        cards.driver,
        cards.visible,
        cards.held,
        cards.orphaned_memory,
        cards.device_files,
    ),
    "host": (
        host_memory.memory,
        host_memory.shared_memory,
        host_memory.huge_pages,
        user_folders.home,
        user_folders.own_folder,
    ),
    "flags": (
        flags.lazy_mode,
        flags.harmful,
        flags.strict,
        flags.integers,
        flags.fallbacks,
        flags.pool,
        flags.files,
        flags.metrics_file,
        flags.visible_modules,
        flags.chosen_module,
        flags.visible_devices,
    ),
    "storage": (storage.recipe_cache, storage.logs),
    "jupyter": (
        jupyter.proxy_variables,
        jupyter.servers,
        jupyter.front_end,
        jupyter.server_extension,
        jupyter.widget_halves,
    ),
}
