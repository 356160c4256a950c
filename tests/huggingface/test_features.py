"""The table of features: complete and proven."""

from __future__ import annotations

from collections import Counter

import pytest
from features import FEATURES, TRANSFORMERS, Status, proofs, proves


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
