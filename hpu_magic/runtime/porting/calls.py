"""Convert calls in which both the function and the arguments change."""

from __future__ import annotations

import ast
from collections.abc import Callable

from hpu_magic.runtime.porting import arguments
from hpu_magic.runtime.porting.cell import Cell
from hpu_magic.runtime.porting.findings import NOT_PORTED, ONE_CARD, REMARK
from hpu_magic.runtime.porting.tables import counterpart

_BOUND = ("torch.amp.custom_fwd", "torch.amp.custom_bwd")
_HOMES = {
    "autocast": "torch.amp",
    "GradScaler": "torch.amp",
    "DistributedDataParallel": "torch.nn",
    "DataParallel": "torch.nn",
}
_DTYPES = {
    "BFloat16Tensor": "bfloat16",
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "HalfTensor": "float16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "ShortTensor": "int16",
}
_STARRED = "with * unpacking is not ported: pass its arguments explicitly"
_COMPILED = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")
_OF_CUDA = ("device", "non_blocking", "memory_format")
# Maps parameters of torch.cuda functions to those of the card's functions, or to None if there is
# no such parameter.
_PARAMETERS: dict[str, dict[str, str | None]] = {
    "torch.hpu.is_bf16_supported": {"including_emulation": None},
    "torch.hpu.memory_summary": {"device": "device", "abbreviated": None},
    "torch.hpu.HPUGraph": {"keep_graph": None},
    "torch.hpu.make_graphed_callables": {
        "callables": "callables",
        "sample_args": "sample_args",
        "num_warmup_iters": "warmups",
        "allow_unused_input": "allow_unused_input",
        "pool": None,
    },
    "torch.hpu.graph": {
        "cuda_graph": "hpu_graph",
        "pool": None,
        "stream": "stream",
        "capture_error_mode": None,
        "enable_annotations": None,
        "check_input_liveness": None,
    },
}


def convert(cell: Cell, node: ast.Call) -> bool:
    """Convert a call and its children, or return False if it needs no special treatment."""
    name = cell.bindings.dotted(node.func)
    if name is None:
        return _method(cell, node)
    known = counterpart(name)
    if known is not None:
        if known.action == "value":
            cell.remark(node, name, known)
            if known.text:
                cell.replace(node, known.text)
            return True
        rule = _BY_COUNTERPART.get(known.text)
    else:
        rule = _BY_NAME.get(_public(name))
    if rule is None or not cell.typed(node):
        return False
    rule(cell, node, name)
    return True


def is_properties(cell: Cell, node: ast.AST) -> bool:
    """Return whether an expression is a call to ``get_device_properties``."""
    if not isinstance(node, ast.Call):
        return False
    name = cell.bindings.dotted(node.func)
    return name is not None and name.endswith(".get_device_properties")


def bare_decorator(cell: Cell, node: ast.expr) -> None:
    """If a decorator has no arguments, add those that the card needs."""
    name = cell.bindings.dotted(node)
    if name is None:
        return
    known = counterpart(name)
    if known is not None and known.text in _BOUND:
        cell.insert(cell.source.end(node), f"(device_type={cell.text('hpu')})")
    elif name == "torch.compile":
        cell.insert(cell.source.end(node), f"(backend={cell.text('hpu_backend')})")


def _public(name: str) -> str:
    """Return the public name of a class, given a name that may include a private module."""
    last = name.rpartition(".")[2]
    home = _HOMES.get(last)
    return f"{home}.{last}" if home is not None and name.startswith(f"{home}.") else name


def _method(cell: Cell, node: ast.Call) -> bool:
    function = node.func
    if isinstance(function, ast.Attribute) and not cell.typed(node):
        if function.attr == "cuda":
            cell.note(node, REMARK, NOT_PORTED)
    elif isinstance(function, ast.Attribute):
        if function.attr == "cuda":
            if arguments.starred(node) or arguments.has(node, None):
                cell.note(node, REMARK, f"cuda() {_STARRED}")
                return False
            _to_card(cell, node, function)
            return True
        if function.attr == "type" and len(node.args) == 1 and not node.keywords:
            return _type(cell, node, function)
        if function.attr == "compile" and not node.args:
            return _module_compile(cell, node, function)
        if function.attr == "half" and not node.args:
            text = "float16 has a smaller range than bfloat16, the card's native type"
            cell.note(node, REMARK, f"{text}: prefer .bfloat16()")
    return False


def _to_card(cell: Cell, node: ast.Call, function: ast.Attribute) -> None:
    """Convert ``x.cuda(device, non_blocking=True)`` to ``x.to("hpu", non_blocking=True)``."""
    end = cell.source.end(function)
    cell.edits.append(cell.source.replaced(end - len("cuda"), end, "to"))
    # A map_location function with two parameters is called with storages, whose methods accept the
    # device only as a keyword argument.
    storage = any(len(each.args.args) == 2 for each in cell.within(ast.Lambda))
    card = f"device={cell.text('hpu')}" if storage else cell.text("hpu")
    by_name = [each for each in node.keywords if each.arg == "device"]
    if node.args:
        cell.replace(node.args[0], card)
    elif by_name:
        cell.replace(by_name[0].value, cell.text("hpu"))
    else:
        arguments.first(cell, node, card)
    for argument, keyword in zip(node.args[1:], _OF_CUDA[1:], strict=False):
        cell.insert(arguments.extent(cell, node, argument)[0], f"{keyword}=")
    others = [each for each in node.keywords if each.arg != "device"]
    cell.children(node, [function.value, *node.args[1:], *others])


def _type(cell: Cell, node: ast.Call, function: ast.Attribute) -> bool:
    """Convert ``x.type(torch.cuda.HalfTensor)`` to ``x.to("hpu", torch.float16)``."""
    dtype = _cuda_type(cell, node.args[0])
    if dtype is None:
        return False
    end = cell.source.end(function)
    cell.edits.append(cell.source.replaced(end - len("type"), end, "to"))
    cell.needs_torch = True
    cell.replace(node.args[0], f"{cell.text('hpu')}, torch.{dtype}")
    cell.children(node, [function.value])
    return True


def _default_type(cell: Cell, node: ast.Call, name: str) -> None:
    """Convert a call that sets a default CUDA tensor type to one that sets the default device."""
    if len(node.args) == 1 and _cuda_type(cell, node.args[0]) is not None:
        dtype = _cuda_type(cell, node.args[0])
        cell.rename(node.func, "torch.set_default_device")
        cell.replace(node.args[0], cell.text("hpu"))
        if dtype != "float32":
            text = f"add torch.set_default_dtype(torch.{dtype}) to keep the default dtype"
            cell.note(node, REMARK, text)
    else:
        cell.generic_visit(node)


def _cuda_type(cell: Cell, node: ast.expr) -> str | None:
    """Return the dtype of a tensor type, such as ``torch.cuda.HalfTensor`` or its name."""
    text = node.value if isinstance(node, ast.Constant) else cell.bindings.dotted(node)
    if isinstance(text, str) and text.startswith("torch.cuda."):
        return _DTYPES.get(text.removeprefix("torch.cuda."))
    return None


def _context(cell: Cell, node: ast.Call, name: str) -> None:
    """Convert ``torch.cuda.device`` to a context manager for the process's only card."""
    cell.rename(node.func, "torch.hpu.device")
    _any_number(cell, node, known=False)


def _set_device(cell: Cell, node: ast.Call, name: str) -> None:
    """Convert ``torch.cuda.set_device``, keeping the rank of a distributed process."""
    cell.rename(node.func, "torch.hpu.set_device")
    _any_number(cell, node, known=True)


def _any_number(cell: Cell, node: ast.Call, *, known: bool) -> None:
    """Replace a card number with 0; unless `known`, also replace a variable that may hold one."""
    devices = [*node.args, *(each.value for each in node.keywords if each.arg == "device")]
    if (
        len(devices) == 1
        and _other_number(cell, devices[0], known)
        and cell.replace(devices[0], "0")
    ):
        cell.note(node, REMARK, ONE_CARD)
    else:
        cell.children(node, [*node.args, *node.keywords])


def _other_number(cell: Cell, node: ast.expr, known: bool) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value > 0
    if known or isinstance(node, ast.Starred) or ast.unparse(node).endswith("device"):
        return False
    return not (isinstance(node, ast.Call) and cell.bindings.dotted(node.func) == "torch.device")


def _other_parameters(cell: Cell, node: ast.Call, name: str) -> None:
    """Rename arguments to match the card's function, and remove those that it does not have."""
    known = counterpart(name)
    assert known is not None
    cell.remark(node, name, known)
    cell.rename(node.func, known.text)
    if arguments.starred(node):
        cell.note(node, REMARK, f"{name} {_STARRED}")
        cell.children(node, arguments.in_order(node))
    else:
        arguments.as_parameters(cell, node, _PARAMETERS[known.text])


def _autocast(cell: Cell, node: ast.Call, name: str) -> None:
    if name.startswith("torch.cuda."):
        if arguments.starred(node):
            cell.note(node, REMARK, f"{name} {_STARRED}")
            cell.children(node, arguments.in_order(node))
            return
        if len(node.args) < 2 and not arguments.has(node, "dtype"):
            cell.note(
                node,
                REMARK,
                "without dtype, autocast computes in bfloat16 on the card and in float16 on a GPU",
            )
        cell.rename(node.func, "torch.autocast")  # shorter than torch.amp.autocast
        arguments.first(cell, node, cell.text("hpu"))
        order = ("enabled", "dtype", "cache_enabled")  # the order differs from torch.autocast
        for argument, keyword in zip(node.args, order, strict=False):
            cell.insert(arguments.extent(cell, node, argument)[0], f"{keyword}=")
    cell.children(node, [*node.args, *node.keywords])
    types = [*node.args[1:], *(each.value for each in node.keywords if each.arg == "dtype")]
    if any(cell.bindings.dotted(each) in ("torch.float16", "torch.half") for each in types):
        text = "float16 is kept, but bfloat16 is the card's native type and needs no GradScaler"
        cell.note(node, REMARK, text)


def _scaler(cell: Cell, node: ast.Call, name: str) -> None:
    if name.startswith("torch.cuda."):
        cell.rename(node.func, "torch.amp.GradScaler")
        arguments.first(cell, node, cell.text("hpu"))
    elif not node.args and not arguments.has(node, "device"):
        arguments.first(cell, node, cell.text("hpu"))
    text = "the GradScaler is kept, but bfloat16, the card's native type, does not need it"
    cell.note(node, REMARK, text)
    cell.children(node, [*node.args, *node.keywords])


def _bound(cell: Cell, node: ast.Call, name: str) -> None:
    known = counterpart(name)
    assert known is not None
    cell.rename(node.func, known.text)
    arguments.first(cell, node, f"device_type={cell.text('hpu')}")
    cell.children(node, [*node.args, *node.keywords])


def _device(cell: Cell, node: ast.Call, name: str) -> None:
    """Remove the index in ``torch.device("cuda", rank)``; set it to 0 if the device is compared."""
    kinds = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "type")]
    written = cell.devices.written.get(kinds[0]) if kinds else None
    numbers = [each for each in arguments.in_order(node) if _is_index(node, each)]
    if not numbers or written is None:
        cell.generic_visit(node)
        return
    cell.note(node, REMARK, ONE_CARD)
    if written == "hpu:0":
        cell.devices.written[kinds[0]] = "hpu"
        for each in numbers:
            cell.replace(each.value if isinstance(each, ast.keyword) else each, "0")
    else:
        arguments.remove(cell, node, numbers)
    cell.children(node, [each for each in arguments.in_order(node) if each not in numbers])


def _is_index(node: ast.Call, argument: arguments.Argument) -> bool:
    if isinstance(argument, ast.keyword):
        return argument.arg == "index"
    return argument in node.args[1:2]


def _compile(cell: Cell, node: ast.Call, name: str) -> None:
    keywords = {each.arg: each for each in node.keywords}
    backend = keywords.get("backend")
    if backend is not None and not _is_inductor(backend.value):
        cell.generic_visit(node)
        return
    written = f"backend={cell.text('hpu_backend')}"
    of_inductor = [keywords[each] for each in ("backend", "mode", "options") if each in keywords]
    if of_inductor:
        arguments.put(cell, node, of_inductor[0], written)
        arguments.remove(cell, node, of_inductor[1:])
    else:
        arguments.last(cell, node, written)
    for each in of_inductor:
        if each is not backend:
            text = f"{each.arg}= applies only to the GPU compiler; hpu_backend has other options"
            cell.note(node, REMARK, text)
    others = [each for each in arguments.in_order(node) if each not in of_inductor]
    cell.children(node, [node.func, *others] if name == "" else others)


def _module_compile(cell: Cell, node: ast.Call, function: ast.Attribute) -> bool:
    """Convert ``model.compile()`` if the object or the arguments show that it is a module."""
    names = {each.arg for each in node.keywords}
    if names.issubset(_COMPILED) and (names or _is_module(cell, function.value)):
        _compile(cell, node, "")
        return True
    if not names:
        text = 'add backend="hpu_backend" to compile() if this is a torch.nn.Module'
        cell.note(node, REMARK, text)
    return False


def _is_module(cell: Cell, node: ast.expr) -> bool:
    value = cell.bindings.variable(node.id) if isinstance(node, ast.Name) else None
    kinds = (f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__)
    return "torch.nn.modules.module.Module" in kinds


def _profile(cell: Cell, node: ast.Call, name: str) -> None:
    if arguments.has(node, "use_cuda"):
        text = "use_cuda= records only GPUs: use torch.profiler.profile() to record the card"
        cell.note(node, REMARK, text)
    cell.generic_visit(node)


def _is_inductor(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == "inductor"


def _parallel(cell: Cell, node: ast.Call, name: str) -> None:
    """Remove the card numbers, because a module stays on the process's card."""
    cards = [each for each in node.keywords if each.arg in ("device_ids", "output_device")]
    for each in cards:
        cell.replace(each.value, "None")
    cell.children(node, [*node.args, *(each for each in node.keywords if each not in cards)])


def _data_parallel(cell: Cell, node: ast.Call, name: str) -> None:
    text = "torch.nn.DataParallel uses one card: start one process per card instead, with"
    cell.note(node, REMARK, f"{text} DistributedDataParallel")
    cell.generic_visit(node)


_Rule = Callable[[Cell, ast.Call, str], None]
_BY_COUNTERPART: dict[str, _Rule] = {
    "torch.amp.autocast": _autocast,
    "torch.amp.GradScaler": _scaler,
    "torch.hpu.device": _context,
    "torch.hpu.set_device": _set_device,
    **dict.fromkeys(_PARAMETERS, _other_parameters),
    **dict.fromkeys(_BOUND, _bound),
}
_BY_NAME: dict[str, _Rule] = {
    "torch.autocast": _autocast,
    "torch.amp.autocast": _autocast,
    "torch.amp.GradScaler": _scaler,
    "torch.GradScaler": _scaler,
    "torch.device": _device,
    "torch.compile": _compile,
    "torch.autograd.profiler.profile": _profile,
    "torch.set_default_tensor_type": _default_type,
    "torch.nn.DistributedDataParallel": _parallel,
    "torch.nn.DataParallel": _data_parallel,
}
