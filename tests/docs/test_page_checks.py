"""Test the checks of commands and outputs on pages."""

import pytest
import shell_commands
from fenced_blocks import Block
from shown_output import assert_shows


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("make bench docs  # both", ""),
        ("make all-of-it", "the Makefile has no all-of-it"),
        ("PT_HPU_LAZY_MODE=1 python -m hpu_magic.simulator train.py > log", ""),
        ("HPU_MAGIC_SIMULATE=1 pytest", "nothing reads HPU_MAGIC_SIMULATE"),
        ("python -m hpu_magic.simulate train.py", "no module hpu_magic.simulate"),
        ('pip install -c vendor.txt "hpu_magic[gaudi,lab]"', ""),
        ('pip install "hpu_magic[gaudi,sidebar]"', "there is no extra sidebar"),
        ("pip install hpu_magics", "hpu_magics is required nowhere"),
        ("cd folder && hpu-magic top 3", ""),
        ("hpu-magic top --cards", "unrecognized arguments: --cards"),
        ("sudo hpu_magic doctor", "there is no program hpu_magic"),
    ],
)
def test_invalid_names_in_commands_are_reported(command, problem):
    problems = shell_commands.problems_of(command)
    assert (len(problems), problem in "".join(problems)) == (bool(problem), True)


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("step 12 ms, 3 graphs, 64.0 MiB", True),
        ("step 1.2 s, 3 graphs, 63.0 MiB", True),  # a time, and a size within 5 %
        ("step   12 ms, 3 graphs, ...", True),
        ("...\nstep 12 ms, 3 graphs, 64.0 MiB", True),
        ("step 12 ms, 4 graphs, 64.0 MiB", False),
        ("step 12 ms, 3 graphs, 64.0 GiB", False),
        ("step 12 ms, 3 graphs", False),
    ],
)
def test_outputs_are_compared_except_for_times(shown, same):
    block = Block("page.md", 1, "output", f"{shown}\n", "")
    if same:
        assert_shows(block, "step 12 ms, 3 graphs, 64.0 MiB\n")
    else:
        with pytest.raises(AssertionError):
            assert_shows(block, "step 12 ms, 3 graphs, 64.0 MiB\n")
