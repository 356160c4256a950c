"""Choose the accelerator, cards, strategy and precision for ``hpu`` in Lightning's connectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.parallel import PARALLEL
from hpu_magic.lightning.precision import SUPPORTED_PRECISIONS
from hpu_magic.lightning.processes import devices
from hpu_magic.lightning.strategy import SINGLE, StrategyOnHPU

# The connector methods to wrap, and the parameters that each of them must have.
WRAPPED: dict[str, set[str]] = {
    "_check_config_and_set_final_flags": {"strategy", "accelerator", "precision", "plugins"},
    "_check_device_config_and_set_final_flags": {"devices", "num_nodes"},
    "_set_devices_flag_if_auto_passed": set(),
    "_choose_and_init_cluster_environment": set(),
    "_choose_strategy": set(),
    "_check_strategy_and_fallback": set(),
    "_check_and_init_precision": set(),
    "_choose_auto_accelerator": set(),
}
_HALF = ("bf16-true", "16-true")


@dataclass(frozen=True)
class Flags:
    """Names that differ between the connectors of ``Trainer`` and ``Fabric``."""

    user: str
    precision: str
    precision_plugin: str
    plugin_class: str


TRAINER = Flags("Trainer", "_precision_flag", "_precision_plugin_flag", "HPUPrecisionPlugin")
FABRIC = Flags("Fabric", "_precision_input", "_precision_instance", "HPUPrecision")


@dataclass(frozen=True)
class Stock:
    """The Lightning objects that `Choices` needs."""

    registry: Any  # maps names to Lightning's strategies
    counterparts: dict[type, type[Any]]  # maps Lightning's strategies that work on cards to ours
    environment: type[Any]  # reads the rank from environment variables
    info: Callable[[str], None]  # logs a message in the process with rank 0


class Choices:
    """Wrappers of the connector's methods, called with the original method and its arguments.

    `refused` is the exception class that the connector raises for invalid arguments.
    """

    def __init__(self, plugins: Any, stock: Stock, flags: Flags, refused: type[Exception]) -> None:
        self._plugins = plugins
        self._stock = stock
        self.flags = flags
        self._refused = refused

    @staticmethod
    def _on_hpu(connector: Any) -> bool:
        flag = connector._accelerator_flag
        return flag == "hpu" or isinstance(flag, HPUAcceleratorBase)

    def check_config_and_set_final_flags(
        self, original: Callable[..., Any], connector: Any, **options: Any
    ) -> None:
        """Select the accelerator that our strategies require, and reject unsupported options."""
        strategy, accelerator = options["strategy"], options["accelerator"]
        if isinstance(strategy, StrategyOnHPU):
            self._require_own(strategy)
        has_accelerator = getattr(strategy, "_accelerator", None) is not None
        if accelerator == "auto" and not has_accelerator and self._is_ours(strategy):
            options["accelerator"] = accelerator = "hpu"
        if options["precision"] == "fp8" and (
            accelerator in ("auto", "hpu") or isinstance(accelerator, HPUAcceleratorBase)
        ):
            raise self._refused(
                "precision='fp8' does not specify the layers to run in FP8: write "
                f"plugins=[{self.flags.plugin_class}(precision='fp8', replace_layers=True)]."
            )
        original(connector, **options)

    def _is_ours(self, strategy: Any) -> bool:
        if isinstance(strategy, str):
            registry, name = self._stock.registry, strategy.lower()
            kind = registry[name]["strategy"] if name in registry else None
            return isinstance(kind, type) and issubclass(kind, StrategyOnHPU)
        return isinstance(strategy, StrategyOnHPU)

    def _require_own(self, plugin: Any) -> None:
        if plugin.namespace != self._plugins.namespace:
            raise self._refused(
                f"This {type(plugin).__name__} is for {plugin.namespace}, but it was passed to the "
                f"{self.flags.user} of {self._plugins.namespace}: use the class from "
                f"hpu_magic.lightning.namespaces.plugins({self._plugins.namespace!r})."
            )

    def check_device_config_and_set_final_flags(
        self, original: Callable[..., Any], connector: Any, **options: Any
    ) -> None:
        """Raise an error if more cards are requested than the machine has."""
        if self._on_hpu(connector) and options["devices"] != "auto":
            self._plugins.HPUAccelerator.parse_devices(options["devices"])
        original(connector, **options)

    def set_devices_flag_if_auto_passed(self, original: Callable[..., Any], connector: Any) -> None:
        """Select the default number of cards if the user did not set `devices`."""
        if connector._devices_flag == "auto" and self._on_hpu(connector):
            connector._devices_flag = self._cards_by_default(connector)
        else:
            original(connector)

    def _cards_by_default(self, connector: Any) -> int:
        strategy = connector._strategy_flag
        if strategy == SINGLE or isinstance(strategy, self._plugins.SingleHPUStrategy):
            return 1
        if devices.started_by_others():
            return devices.processes_here(connector._num_nodes_flag)
        cards: int = self._plugins.HPUAccelerator.auto_device_count()
        if cards > 1 and devices.is_interactive():
            self._stock.info(
                f"{self.flags.user} uses only one of {cards} cards, because an interactive session "
                f"is a single process: begin the cell with %%hpu_workers --cards {cards} to train "
                "on all of them."
            )
            return 1
        return cards

    def choose_and_init_cluster_environment(
        self, original: Callable[..., Any], connector: Any
    ) -> Any:
        """Read the ranks from environment variables if a launcher has started the processes."""
        selected = connector._cluster_environment_flag
        if selected is None and self._on_hpu(connector) and devices.started_by_others():
            return self._stock.environment()
        return original(connector)

    def choose_strategy(self, original: Callable[..., Any], connector: Any) -> Any:
        """Select a strategy that runs one process per card."""
        if not self._on_hpu(connector):
            return original(connector)
        if len(connector._parallel_devices) > 1 or connector._num_nodes_flag > 1:
            return self._plugins.HPUParallelStrategy()
        return self._plugins.SingleHPUStrategy(device=connector._parallel_devices[0])

    def check_strategy_and_fallback(self, original: Callable[..., Any], connector: Any) -> Any:
        """Replace Lightning's strategy with our counterpart, and check that it is supported."""
        if self._on_hpu(connector):
            flag = connector._strategy_flag = self._counterpart(connector)
            if flag == SINGLE or isinstance(flag, self._plugins.SingleHPUStrategy):
                self._require_one(connector, flag)
            else:
                self._require_processes(connector, flag)
        elif self._is_ours(connector._strategy_flag):
            raise self._refused(
                f"strategy={_shown(connector._strategy_flag)} needs accelerator='hpu', not "
                f"{connector._accelerator_flag!r}."
            )
        return original(connector)

    def _counterpart(self, connector: Any) -> Any:
        """Return our strategy that corresponds to Lightning's strategy."""
        flag = connector._strategy_flag
        if self._is_ours(flag):
            return flag
        known = self._stock.counterparts
        if isinstance(flag, str):
            entry = self._stock.registry[flag]
            ours, options = known.get(entry["strategy"]), entry["init_params"]
            if ours is not None and options.get("start_method") != "fork":
                return ours(**options)
        elif not hasattr(flag, "parallel_devices"):
            return flag
        instead = known.get(type(flag))
        several = len(connector._parallel_devices) > 1 or connector._num_nodes_flag > 1
        name = repr(PARALLEL if several else SINGLE)
        raise self._refused(
            f"strategy={_shown(flag)} is not supported on hpu: remove strategy, or write "
            f"strategy={f'{instead.__name__}(...)' if instead else name}."
        )

    def _require_one(self, connector: Any, flag: Any) -> None:
        nodes, cards = connector._num_nodes_flag, len(connector._parallel_devices)
        if nodes > 1 or cards > 1:
            shown = f"num_nodes={nodes}" if nodes > 1 else f"devices={cards}"
            raise self._refused(
                f"strategy={_shown(flag)} trains on only one card, but {shown}: write "
                f"strategy={PARALLEL!r}, or {'num_nodes' if nodes > 1 else 'devices'}=1."
            )

    def _require_processes(self, connector: Any, flag: Any) -> None:
        """Reject several processes in an interactive session."""
        cards = getattr(flag, "parallel_devices", None) or connector._parallel_devices
        processes = len(cards) * connector._num_nodes_flag
        started = connector.cluster_environment.creates_processes_externally
        if processes > 1 and not started and devices.is_interactive():
            nodes = connector._num_nodes_flag
            shown = f"devices={len(cards)}" + (f" on {nodes} machines" if nodes > 1 else "")
            raise self._refused(
                f"{shown} needs {processes} processes, one per card, but an interactive session is "
                f"a single process: begin the cell with %%hpu_workers --cards {processes}, or run "
                "a script."
            )

    def check_and_init_precision(self, original: Callable[..., Any], connector: Any) -> Any:
        """Select our precision plug-in."""
        precision = getattr(connector, self.flags.precision)
        plugin = getattr(connector, self.flags.precision_plugin)
        if not self._on_hpu(connector):
            return original(connector)
        needed = getattr(connector.strategy, "_precision_class", None)
        if needed is not None:
            if plugin is None:
                return needed(precision)
            if not isinstance(plugin, needed):
                raise self._refused(
                    f"{type(connector.strategy).__name__} needs {needed.__name__}, not "
                    f"{type(plugin).__name__}: write precision='bf16-mixed', or "
                    f"plugins=[{needed.__name__}('bf16-mixed')]."
                )
        if plugin is not None or precision in _HALF:
            return original(connector)
        if precision not in SUPPORTED_PRECISIONS:
            raise self._refused(
                f"precision={precision!r} is not supported on hpu: "
                f"write {', '.join(map(repr, (*SUPPORTED_PRECISIONS, 'bf16-true')))} or '16-true'."
            )
        if precision == "16-mixed" and isinstance(
            connector.strategy, self._plugins.HPUModelParallelStrategy
        ):
            raise self._refused(
                "precision='16-mixed' scales the loss, which HPUModelParallelStrategy does not "
                "support: write precision='bf16-mixed'."
            )
        return getattr(self._plugins, self.flags.plugin_class)(precision)

    def choose_auto_accelerator(self, original: Callable[..., Any], *connector: Any) -> str:
        """Select ``hpu`` if Lightning finds no accelerator other than the CPU."""
        chosen: str = original(*connector)
        available = self._plugins.HPUAccelerator.is_available
        return "hpu" if chosen == "cpu" and available() else chosen


def _shown(strategy: Any) -> str:
    return repr(strategy) if isinstance(strategy, str) else type(strategy).__name__
