"""The table of features: complete, proven and as the page shows it."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from features import FEATURES, TRANSFORMERS, Status, proofs, proves

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_what_the_features_say():
    spec = importlib.util.spec_from_file_location(
        "huggingface_page", ROOT / "tools" / "huggingface.py"
    )
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), "run make tables"


def test_every_feature_is_proven_by_a_test():
    proven = {(library, name) for library, name, _ in proofs()}
    assert {(feature.library, feature.name) for feature in FEATURES} == proven


def test_a_feature_has_one_row_beside_those_of_its_library():
    rows = Counter((feature.library, feature.name) for feature in FEATURES)
    assert [row for row, count in rows.items() if count > 1] == []
    libraries = [feature.library for feature in FEATURES]
    assert libraries == sorted(libraries, key=list(dict.fromkeys(libraries)).index)


def test_what_does_not_simply_run_says_why():
    silent = [each.name for each in FEATURES if each.status is not Status.RUNS and not each.note]
    assert silent == []


def test_a_test_cannot_prove_what_has_no_row():
    with pytest.raises(ValueError, match="No feature of transformers is called 'telepathy'"):
        proves(TRANSFORMERS, "telepathy")
