"""The features of Hugging Face's libraries in `features.tsv`, and the tests that prove them."""

import ast
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

_Test = TypeVar("_Test", bound=Callable[..., object])
_FOLDER = Path(__file__).parent


class Status(Enum):
    """The behavior of a program that uses a feature."""

    RUNS = "runs"
    DIFFERS = "differs"
    REFUSED = "refused"


@dataclass(frozen=True)
class Feature:
    """A row of the page; the note explains a difference or refusal."""

    library: str
    name: str
    status: Status
    note: str


TRANSFORMERS, ACCELERATE, PEFT = "transformers", "accelerate", "peft"
DIFFUSERS, SENTENCE_TRANSFORMERS = "diffusers", "sentence-transformers"
TRL, OPTIMUM_HABANA = "trl", "optimum-habana"

with (_FOLDER / "features.tsv").open(encoding="utf-8") as _file:
    FEATURES = [
        Feature(row["library"], row["feature"], Status(row["status"]), row["note"] or "")
        for row in csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE)
    ]


def proves(library: str, *names: str) -> Callable[[_Test], _Test]:
    """Declare the features that a test proves; `proofs` reads this from the test's source."""
    known = {(feature.library, feature.name) for feature in FEATURES}
    for name in names:
        if (library, name) not in known:
            raise ValueError(f"Unknown feature {name!r} of {library}; add a row to features.tsv.")
    return lambda test: test


def proofs() -> Iterator[tuple[str, str, str]]:
    """Yield the library, feature and test of each use of `proves` in this folder."""
    for path in sorted(_FOLDER.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for library, name in _proven_by(node):
                    yield library, name, f"{path.name}::{node.name}"


def _proven_by(test: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for decorator in test.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Name)
            and decorator.func.id == "proves"
        ):
            library, *names = (_value(argument) for argument in decorator.args)
            yield from ((library, name) for name in names)


def _value(argument: ast.expr) -> str:
    """Return the value of a literal or of a constant of this module."""
    if isinstance(argument, ast.Name):
        return str(globals()[argument.id])
    return str(ast.literal_eval(argument))
