"""Calls every operator of ``torch.ops.hpu`` with random and with modified valid arguments.

Each call must return a result or raise a Python exception. ``python wrong_arguments.py --count 200
--first 0`` makes 200 calls per operator in the mode that the environment selects, and prints the
number of operators, results and errors. With ``--empty``, it makes valid calls in which one size of
the tensors is 0. Each call is printed to standard error first, so the output of a crashed process
ends with the call that crashed.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import FunctionSchema

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import core as htcore  # noqa: E402
from valid_calls import Call, valid_calls  # noqa: E402

LONG = 2**19  # size of expanded tensors; a square matrix of this size does not fit on any card
HUGE = 2**62  # size of tensors that also have an empty dimension
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.float32, torch.bfloat16, *FP8, torch.int32, torch.int64)
ODD_DTYPES = (torch.float16, torch.float64, torch.int8, torch.uint8, torch.bool, torch.complex64)
NUMBERS = (0, 1, 2, -1, 4, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, 0.5, -1.0, float("nan"), float("inf"), 1e300)
WORDS = ("none", "fast", "left", "right", "silu", "gelu", "relu", "", "no such word", "\0" * 300)


class Arguments:
    """Random arguments of one call, similar enough that some calls are valid."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        size = chance.choice((1, 2, 4, 8))
        self._sizes = [size, size, size, *chance.choice(((), (1, 4)))]
        self._dtypes = chance.choice(
            ([torch.float32], [torch.bfloat16], FP8[:1], FP8, DTYPES, [torch.float32, torch.int64])
        )
        self._dimensions = chance.choice((1, 2, 3, 4))
        self._wildness = chance.choice((0.0, 0.0, 0.03, 0.3))

    def of(self, schema: FunctionSchema) -> Call:
        """Return positional and keyword arguments."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for declared in schema.arguments:
            value = self._value(str(declared.real_type))
            if self._wild():
                value = self._chance.choice((None, "word", 3, [], object(), 1.5, torch.ones(2)))
            if declared.kwarg_only:
                kwargs[declared.name] = value
            else:
                args.append(value)
        if self._wild():
            args = args[:-1]
        if self._wild():
            args.append(None)
        if self._wild():
            kwargs["no_such_argument"] = 1
        return args, kwargs

    def _wild(self) -> bool:
        return self._chance.random() < self._wildness

    def _value(self, kind: str) -> Any:
        chance = self._chance
        if kind.startswith("Optional["):
            return None if chance.random() < 0.4 else self._value(kind[len("Optional[") : -1])
        if kind.startswith("List["):
            count = chance.choice((0, 1, 3)) if self._wild() else 2
            return [self._value(kind[len("List[") : -1]) for _ in range(count)]
        if kind == "Tensor":
            return self._tensor()
        if kind == "bool":
            return chance.random() < 0.5
        if kind == "str":
            return chance.choice(WORDS[-2:] if self._wild() else WORDS[:-2])
        if kind == "float":
            return chance.choice(FLOATS if self._wild() else FLOATS[:3])
        if kind == "ScalarType":
            return chance.choice(ODD_DTYPES if self._wild() else DTYPES[:4])
        small = (0, 1, 2, self._sizes[0])
        return chance.choice(NUMBERS + FLOATS[:4] * (kind == "number") if self._wild() else small)

    def _shape(self) -> list[int]:
        dimensions = self._chance.choice(range(6)) if self._wild() else self._dimensions
        sizes = [self._chance.choice(self._sizes) for _ in range(dimensions)]
        return [0 if self._wild() else size for size in sizes]

    def _tensor(self) -> torch.Tensor:
        chance = self._chance
        dtype = chance.choice(ODD_DTYPES if self._wild() else self._dtypes)
        shape = self._shape()
        if chance.random() < 0.3:
            shape = chance.choice(([], [1], shape[-1:], shape[:1], [*shape[:-1], 1]))
        made = (torch.rand(shape) * chance.choice((1, 4, 1000)) - chance.choice((0, 1))).to(dtype)
        if self._wild():
            return made  # on the CPU
        made = made.to("hpu")
        if self._wild() and shape:
            where = chance.randrange(len(shape))
            sizes = [LONG if i == where and size else size for i, size in enumerate(shape)]
            return made.narrow(where, 0, min(shape[where], 1)).expand(sizes)
        if self._wild():
            return torch.empty(HUGE, 0, dtype=dtype, device="hpu")
        if self._wild() and dtype.is_floating_point:
            return made.fill_(float("nan"))
        return made.transpose(0, -1) if self._wild() and shape else made


class Modified:
    """Arguments of a valid call, with one or two of them changed."""

    def __init__(self, chance: random.Random, valid: list[Call]) -> None:
        self._chance = chance
        self._valid = valid

    def of(self, schema: FunctionSchema) -> Call:
        """Return positional and keyword arguments."""
        args, kwargs = self._chance.choice(self._valid)
        args = [self._fresh(each) for each in args]
        for _ in range(self._chance.choice((1, 1, 2))):
            where = self._chance.randrange(len(args))
            args[where] = self._other(args[where])
        return args, kwargs

    def _fresh(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.clone()
        return [self._fresh(each) for each in value] if isinstance(value, list) else value

    def _other(self, value: Any) -> Any:
        chance = self._chance
        if isinstance(value, torch.Tensor):
            return self._other_tensor(value)
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return chance.choice(NUMBERS)
        if isinstance(value, float):
            return chance.choice(FLOATS)
        if isinstance(value, str):
            return chance.choice(WORDS)
        if isinstance(value, list) and value:
            where = chance.randrange(len(value))
            changed = [*value[:where], self._other(value[where]), *value[where + 1 :]]
            return chance.choice((value[1:], [*value, value[0]], changed, changed))
        return chance.choice((None, 0, 1.5, [], torch.ones(2, device="hpu")))

    def _other_tensor(self, tensor: torch.Tensor) -> Any:
        chance = self._chance
        kind = chance.randrange(9)
        where = chance.randrange(max(tensor.dim(), 1))
        if kind == 0:
            return tensor.to(chance.choice(DTYPES + ODD_DTYPES[:5]))
        if kind == 1:
            return tensor.float().fill_(chance.choice((-1, -3, 1000, -1000, 1e9))).to(tensor.dtype)
        if kind == 2:
            return (tensor.float() + chance.choice((-5, 5, 100))).to(tensor.dtype)
        if kind == 3:
            return tensor.unsqueeze(where)
        if kind == 4:
            return chance.choice((None, tensor.cpu(), 3, "word"))
        if not tensor.dim():
            return tensor.expand(chance.choice((0, 2, 5)))
        if kind == 5:
            return tensor.narrow(where, 0, chance.randrange(tensor.shape[where] + 1))
        if kind == 6:
            return tensor.select(where, 0) if tensor.shape[where] else tensor.flatten()
        if kind == 7:
            return torch.cat([tensor.float(), tensor.float()], where).to(tensor.dtype)
        sizes = [LONG if i == where and size else size for i, size in enumerate(tensor.shape)]
        return tensor.narrow(where, 0, min(tensor.shape[where], 1)).expand(sizes)


def _operator(schema: FunctionSchema) -> Any:
    packet = getattr(torch.ops.hpu, schema.name.removeprefix("hpu::"))
    return getattr(packet, schema.overload_name or "default")


def _use(results: Any) -> None:
    """Execute recorded operations, and copy the results to the host."""
    htcore.mark_step()
    for result in results if isinstance(results, (list, tuple)) else [results]:
        if isinstance(result, torch.Tensor):
            result.cpu()


def emptied(call: Call) -> Iterator[Call]:
    """Yield calls in which a size of one or all tensors is replaced with 0."""
    args, kwargs = call

    def cut(value: Any, size: int) -> Any:
        if isinstance(value, list):
            return [cut(each, size) for each in value]
        if isinstance(value, torch.Tensor):
            for dim in range(value.dim()):
                value = value.narrow(dim, 0, 0) if value.shape[dim] == size else value
            return value.clone()
        return value

    flat = [each for value in args for each in (value if isinstance(value, list) else [value])]
    tensors = [each for each in flat if isinstance(each, torch.Tensor)]
    for size in sorted({size for tensor in tensors for size in tensor.shape}):
        yield [cut(value, size) for value in args], kwargs
        for i, value in enumerate(args):
            if isinstance(value, torch.Tensor) and size in value.shape:
                yield [cut(each, size if i == j else -1) for j, each in enumerate(args)], kwargs


def chosen_calls(schema: FunctionSchema, valid: list[Call], options: Any) -> Iterator[Call]:
    """Yield the calls of one operator."""
    if options.empty:
        for each in valid:
            yield from emptied(each)
        return
    for number in range(options.first, options.first + options.count):
        chance = random.Random(f"{schema} {number}")
        arguments = Modified(chance, valid) if valid and number % 2 else Arguments(chance)
        yield arguments.of(schema)


def call(schema: FunctionSchema, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Call an operator, and return whether it returned results instead of an error.

    Raises
    ------
    Exception
        The error has no message, or reports a fault in the engine or in PyTorch.
    """
    try:
        _use(_operator(schema)(*args, **kwargs))
    except Exception as error:
        if not str(error) or "INTERNAL ASSERT" in str(error):
            raise
        return False
    return True


def main() -> None:
    """Call all operators, and print the number of operators, results and errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="calls per operator")
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--empty", action="store_true", help="valid calls with empty tensors")
    parser.add_argument(
        "--only", default="", help="only operators whose declaration contains this text"
    )
    options = parser.parse_args()
    faulthandler.enable()
    torch.ones(1, device="hpu")
    schemas = [each for each in torch._C._jit_get_all_schemas() if each.name.startswith("hpu::")]
    chosen = [each for each in sorted(schemas, key=str) if options.only in str(each)]
    valid = valid_calls()
    outcomes = {True: 0, False: 0}
    for schema in chosen:
        for number, (args, kwargs) in enumerate(chosen_calls(schema, valid[str(schema)], options)):
            print(number, schema, file=sys.stderr, flush=True)
            outcomes[call(schema, args, kwargs)] += 1
    assert (torch.ones(2, device="hpu") + 1).tolist() == [2.0, 2.0]
    print(len(chosen), outcomes[True], outcomes[False])


if __name__ == "__main__":
    main()
