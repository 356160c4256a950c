"""The table of features is complete, and each feature has a test."""

from collections import Counter

import pytest
from features import FEATURES, TRANSFORMERS, Status, proofs, proves


def test_every_feature_is_proven_by_a_test():
    proven = {(library, name) for library, name, _ in proofs()}
    assert {(feature.library, feature.name) for feature in FEATURES} == proven


def test_rows_are_unique_and_grouped_by_library():
    rows = Counter((feature.library, feature.name) for feature in FEATURES)
    assert [row for row, count in rows.items() if count > 1] == []
    libraries = [feature.library for feature in FEATURES]
    assert libraries == sorted(libraries, key=list(dict.fromkeys(libraries)).index)


def test_rows_that_do_not_run_have_a_note():
    unexplained = [
        each.name for each in FEATURES if each.status is not Status.RUNS and not each.note
    ]
    assert unexplained == []


def test_unknown_feature_is_refused():
    with pytest.raises(ValueError, match="Unknown feature 'telepathy' of transformers; add a row"):
        proves(TRANSFORMERS, "telepathy")
