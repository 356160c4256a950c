"""Calls whose arguments change with their function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpu_magic.runtime.porting.findings import REMARK
from hpu_magic.runtime.porting.tables import counterpart

if TYPE_CHECKING:
    from hpu_magic.runtime.porting.rewrite import Rewriter

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
_ONE_CARD = "a process has one card: start one process for each, with DistributedDataParallel"


def mapped(cell: Rewriter, node: ast.Call) -> bool:
    """Map a call and what it consists of; return whether that has been done."""
    name = cell.bindings.dotted(node.func)
    if name is None:
        return _method(cell, node)
    found = counterpart(name)
    if found is not None:
        if found.action == "value":
            cell.remark(node, name, found)
            if found.text:
                cell.replace(node, found.text)
            return True
        rule = _BY_COUNTERPART.get(found.text)
    else:
        rule = _BY_NAME.get(_public(name))
    if rule is None or not cell.typed(node):
        return False
    rule(cell, node, name)
    return True


def asks_properties(cell: Rewriter, node: ast.AST) -> bool:
    """Tell whether an expression asks for a GPU's properties."""
    if not isinstance(node, ast.Call):
        return False
    name = cell.bindings.dotted(node.func)
    return name is not None and name.endswith(".get_device_properties")


def bare_decorator(cell: Rewriter, node: ast.expr) -> None:
    """Call a decorator that stands without arguments, where on the card it needs one."""
    name = cell.bindings.dotted(node)
    if name is None:
        return
    found = counterpart(name)
    if found is not None and found.text in _BOUND:
        cell.insert(cell.source.end(node), f"(device_type={cell.text('hpu')})")
    elif name == "torch.compile":
        cell.insert(cell.source.end(node), f"(backend={cell.text('hpu_backend')})")


def _public(name: str) -> str:
    """Shorten the name of a class, as the notebook's variables tell it, to what users import."""
    last = name.rpartition(".")[2]
    home = _HOMES.get(last)
    return f"{home}.{last}" if home is not None and name.startswith(f"{home}.") else name


def _method(cell: Rewriter, node: ast.Call) -> bool:
    function = node.func
    if isinstance(function, ast.Attribute) and cell.typed(node):
        if function.attr == "cuda":
            if any(isinstance(each, ast.Starred) for each in node.args) or _has(node, None):
                cell.note(node, REMARK, "cuda() with * is not ported: write its arguments out")
                return False
            _to_card(cell, node, function)
            return True
        if function.attr == "type" and len(node.args) == 1 and not node.keywords:
            return _type(cell, node, function)
        if function.attr == "half" and not node.args:
            text = "float16 has less range than bfloat16, the card's own type"
            cell.note(node, REMARK, f"{text}: .bfloat16() is the better choice")
    return False


def _to_card(cell: Rewriter, node: ast.Call, function: ast.Attribute) -> None:
    """Write ``x.cuda(device, non_blocking=True)`` as ``x.to("hpu", non_blocking=True)``."""
    end = cell.source.end(function)
    cell.edits.append(cell.source.replaced(end - len("cuda"), end, "to"))
    # Storages, which map_location hands to a function of two arguments, take it by name only.
    storage = any(len(each.args.args) == 2 for each in cell.within(ast.Lambda))
    card = f"device={cell.text('hpu')}" if storage else cell.text("hpu")
    by_name = [each for each in node.keywords if each.arg == "device"]
    if node.args:
        cell.replace(node.args[0], card)
    elif by_name:
        cell.replace(by_name[0].value, cell.text("hpu"))
    else:
        _first(cell, node, card)
    cell.children(node, [function.value, *node.args[1:], *_others(node, "device")])


def _type(cell: Rewriter, node: ast.Call, function: ast.Attribute) -> bool:
    """Write ``x.type(torch.cuda.HalfTensor)`` as ``x.to("hpu", torch.float16)``."""
    dtype = _cuda_type(cell, node.args[0])
    if dtype is None:
        return False
    end = cell.source.end(function)
    cell.edits.append(cell.source.replaced(end - len("type"), end, "to"))
    cell.needs_torch = True
    cell.replace(node.args[0], f"{cell.text('hpu')}, torch.{dtype}")
    cell.children(node, [function.value])
    return True


def _default_type(cell: Rewriter, node: ast.Call, name: str) -> None:
    """Write the default device in the place of a default type of CUDA."""
    if len(node.args) == 1 and _cuda_type(cell, node.args[0]) is not None:
        dtype = _cuda_type(cell, node.args[0])
        cell.rename(node.func, "torch.set_default_device")
        cell.replace(node.args[0], cell.text("hpu"))
        if dtype != "float32":
            text = f"torch.set_default_dtype(torch.{dtype}) is the other half of what this did"
            cell.note(node, REMARK, text)
    else:
        cell.generic_visit(node)


def _cuda_type(cell: Rewriter, node: ast.expr) -> str | None:
    """Return the dtype that ``torch.cuda.HalfTensor`` names, as a class or a text."""
    text = node.value if isinstance(node, ast.Constant) else cell.bindings.dotted(node)
    if isinstance(text, str) and text.startswith("torch.cuda."):
        return _DTYPES.get(text.removeprefix("torch.cuda."))
    return None


def _context(cell: Rewriter, node: ast.Call, name: str) -> None:
    """Select the process's one card, whichever number is given."""
    cell.rename(node.func, "torch.hpu.device")
    number = node.args[0] if len(node.args) == 1 else None
    if isinstance(number, ast.Constant) and isinstance(number.value, int) and number.value:
        cell.replace(number, "0")
        cell.note(node, REMARK, "a process has one card, hpu:0, whichever its number is")
    else:
        cell.children(node, [*node.args, *node.keywords])


def _graph(cell: Rewriter, node: ast.Call, name: str) -> None:
    cell.rename(node.func, "torch.hpu.graph")
    theirs = [each for each in node.keywords if each.arg in ("pool", "capture_error_mode")]
    for each in theirs:
        _put(cell, node, each, "")
    cell.children(node, [*node.args, *(each for each in node.keywords if each not in theirs)])


def _autocast(cell: Rewriter, node: ast.Call, name: str) -> None:
    positional: Sequence[str] = ()
    if name.startswith("torch.cuda."):
        positional = ("enabled", "dtype", "cache_enabled")  # torch.autocast has another order
        if len(node.args) < 2 and not _has(node, "dtype"):
            cell.note(
                node,
                REMARK,
                "autocast computes in bfloat16 here, in float16 on a GPU, where none is named",
            )
        cell.rename(node.func, "torch.autocast")  # shorter than torch.amp.autocast
        _first(cell, node, cell.text("hpu"))
    for argument, keyword in zip(node.args, positional, strict=False):
        cell.insert(cell.source.start(argument), f"{keyword}=")
    cell.children(node, [*node.args, *node.keywords])
    types = [*node.args[1:], *(each.value for each in node.keywords if each.arg == "dtype")]
    if any(cell.bindings.dotted(each) in ("torch.float16", "torch.half") for each in types):
        text = "bfloat16 is the card's own type, and needs no GradScaler; float16 is kept"
        cell.note(node, REMARK, text)


def _scaler(cell: Rewriter, node: ast.Call, name: str) -> None:
    if name.startswith("torch.cuda."):
        cell.rename(node.func, "torch.amp.GradScaler")
        _first(cell, node, cell.text("hpu"))
    elif not node.args and not _has(node, "device"):
        _first(cell, node, cell.text("hpu"))
    cell.note(node, REMARK, "bfloat16, the card's own type, needs no GradScaler; it is kept")
    cell.children(node, [*node.args, *node.keywords])


def _bound(cell: Rewriter, node: ast.Call, name: str) -> None:
    found = counterpart(name)
    assert found is not None
    cell.rename(node.func, found.text)
    _first(cell, node, f"device_type={cell.text('hpu')}")
    cell.children(node, [*node.args, *node.keywords])


def _device(cell: Rewriter, node: ast.Call, name: str) -> None:
    """Leave out the number of ``torch.device("cuda", rank)``."""
    kind = node.args[0] if node.args else None
    if len(node.args) == 2 and isinstance(kind, ast.Constant) and kind.value == "cuda":
        start, end = cell.source.start(kind), cell.source.end(node.args[1])
        cell.edits.append(cell.source.replaced(start, end, cell.text("hpu")))
        cell.note(node, REMARK, "a process has one card, hpu:0, whichever its number is")
    else:
        cell.generic_visit(node)


def _compile(cell: Rewriter, node: ast.Call, name: str) -> None:
    keywords = {each.arg: each for each in node.keywords}
    backend = keywords.get("backend")
    if backend is not None and not _is_inductor(backend.value):
        cell.generic_visit(node)
        return
    written = f"backend={cell.text('hpu_backend')}"
    theirs = [keywords[each] for each in ("backend", "mode", "options") if each in keywords]
    if not theirs:
        _last(cell, node, written)
    for index, each in enumerate(theirs):
        _put(cell, node, each, "" if index else written)
        if each is not backend:
            cell.note(node, REMARK, f"{each.arg}= is the GPU compiler's: hpu_backend has its own")
    cell.children(node, [*node.args, *(each for each in node.keywords if each not in theirs)])


def _is_inductor(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == "inductor"


def _put(cell: Rewriter, node: ast.Call, keyword: ast.keyword, text: str) -> None:
    """Put `text` in the place of a keyword and its value; nothing takes its comma along."""
    start = cell.source.offset(keyword.lineno, keyword.col_offset)
    end = cell.source.end(keyword.value)
    if not text:
        start = cell.source.text.rindex(",", 0, start)
    cell.edits.append(cell.source.replaced(start, end, text))


def _parallel(cell: Rewriter, node: ast.Call, name: str) -> None:
    """Let a module stay on the process's card, whichever number it is given."""
    given = [each for each in node.keywords if each.arg in ("device_ids", "output_device")]
    for each in given:
        cell.replace(each.value, "None")
    cell.children(node, [*node.args, *(each for each in node.keywords if each not in given)])


def _data_parallel(cell: Rewriter, node: ast.Call, name: str) -> None:
    cell.note(node, REMARK, f"torch.nn.DataParallel uses one card: {_ONE_CARD}")
    cell.generic_visit(node)


_Rule = Callable[["Rewriter", ast.Call, str], None]
_BY_COUNTERPART: dict[str, _Rule] = {
    "torch.amp.autocast": _autocast,
    "torch.amp.GradScaler": _scaler,
    "torch.hpu.device": _context,
    "torch.hpu.graph": _graph,
    **dict.fromkeys(_BOUND, _bound),
}
_BY_NAME: dict[str, _Rule] = {
    "torch.autocast": _autocast,
    "torch.amp.autocast": _autocast,
    "torch.amp.GradScaler": _scaler,
    "torch.GradScaler": _scaler,
    "torch.device": _device,
    "torch.compile": _compile,
    "torch.set_default_tensor_type": _default_type,
    "torch.nn.DistributedDataParallel": _parallel,
    "torch.nn.DataParallel": _data_parallel,
}


def _has(node: ast.Call, keyword: str | None) -> bool:
    return any(each.arg == keyword for each in node.keywords)


def _others(node: ast.Call, keyword: str) -> list[ast.keyword]:
    return [each for each in node.keywords if each.arg != keyword]


def _first(cell: Rewriter, node: ast.Call, argument: str) -> None:
    """Put an argument before all others."""
    opening = cell.source.text.index("(", cell.source.end(node.func))
    more = ", " if node.args or node.keywords else ""
    cell.insert(opening + 1, argument + more)


def _last(cell: Rewriter, node: ast.Call, argument: str) -> None:
    """Put an argument behind all others."""
    given = [*node.args, *(each.value for each in node.keywords)]
    if not given:
        _first(cell, node, argument)
        return
    cell.insert(max(cell.source.end(each) for each in given), f", {argument}")
