"""Observes which modules run in the forward and backward passes, and names them."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn

from hpu_magic.simulator.dry_run.labels import Labels
from hpu_magic.simulator.dry_run.nests import tensors

_eval_frame: Any = torch._C._dynamo.eval_frame
_Root = Callable[[nn.Module, Any, Any], None]


def _skip(code: CodeType) -> None:
    """Make `torch.compile` ignore a function, but not the functions that it calls."""
    if hasattr(_eval_frame, "set_code_exec_strategy"):
        action = _eval_frame._FrameAction
        strategy = _eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        _eval_frame.set_code_exec_strategy(code, strategy)
    else:  # older releases of PyTorch
        _eval_frame.skip_code(code)


class Modules:
    """Assigns a number and a path to each module that runs.

    A path contains the class of the outermost module and the names of its submodules, such as
    ``GPT.layers.3.mlp``.

    Parameters
    ----------
    labels
        Stores which module runs.
    on_root
        Called with each outermost module that runs, and its arguments.
    """

    def __init__(self, labels: Labels, on_root: _Root) -> None:
        self._labels = labels
        self._on_root = on_root
        self._numbers: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        self._running = threading.local()
        self.paths = [""]
        """The path of the module with each number; 0 stands for code outside all modules."""
        self.classes: dict[str, str] = {}
        """Maps the path of each module to the name of its class."""

    def install(self) -> None:
        """Observe all calls of modules.

        Hooks would change what ``torch.compile`` traces, but wrapping the call does not. After a
        graph break, compiled code calls modules. It must not compile the functions of this class.
        """
        kind: Any = nn.Module
        original = kind.__call__

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            compiler = _eval_frame.set_eval_frame(None)
            try:
                number = self._enter(module, args, kwargs)
            finally:
                _eval_frame.set_eval_frame(compiler)
            try:
                output = original(module, *args, **kwargs)
                compiler = _eval_frame.set_eval_frame(None)
                self._labels.creates(number, tensors(output))
                return output
            finally:
                _eval_frame.set_eval_frame(None)
                self._leave()
                _eval_frame.set_eval_frame(compiler)

        observed: Any = call
        _skip(observed.__code__)
        kind.__call__ = call

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> int:
        running = self._stack()
        parent = running[-1] if running else None
        number = self._number_of(module, parent)
        if parent is None:
            self._on_root(module, args, kwargs)
        else:
            # The parent created these inputs, so it also computes their gradients.
            self._labels.creates(self._number_of(parent, None), tensors((args, kwargs)))
        running.append(module)
        self._labels.enter(number)
        return number

    def _leave(self) -> None:
        self._labels.leave()
        self._stack().pop()

    def _stack(self) -> list[nn.Module]:
        try:
            running: list[nn.Module] = self._running.modules
        except AttributeError:
            running = self._running.modules = []
        return running

    def _number_of(self, module: nn.Module, parent: nn.Module | None) -> int:
        known = self._numbers.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        path = self._path_of(module, parent)
        number = len(self.paths)
        self.paths.append(path)
        self.classes[path] = type(module).__name__
        self._numbers[id(module)] = weakref.ref(module), number
        return number

    def _path_of(self, module: nn.Module, parent: nn.Module | None) -> str:
        if parent is not None:
            names = (name for name, each in parent.named_modules() if each is module)
            if name := next(names, ""):
                return f"{self.paths[self._numbers[id(parent)][1]]}.{name}"
        # torch.compile() wraps the module.
        path = name = type(getattr(module, "_orig_mod", module)).__name__
        others = 1
        while path in self.classes:
            others += 1
            path = f"{name} ({others})"
        return path
