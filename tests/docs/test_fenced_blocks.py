"""What the pages are checked with: blocks as Markdown and MyST have them, commands, outputs."""

from __future__ import annotations

from pathlib import Path

import fenced_blocks
import pytest
import shell_commands
from fenced_blocks import Block
from shown_output import assert_shows

PAGE = """\
# A page
<!-- environment: A=1 B=two -->

Text.

```python
x = 1
```

<!-- not run: it needs a card -->
```{code-block} sh
:caption: a file

make lab
```

````{note}
<!-- raises: ValueError -->
```ipython
%load_ext no
```
````

- in a list

  ~~~output
  two
    lines
  ~~~
"""


def test_blocks_have_their_language_line_and_comment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fenced_blocks, "PROJECT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    assert fenced_blocks.blocks_of("page.md") == [
        Block("page.md", 6, "python", "x = 1\n", ""),
        Block("page.md", 11, "sh", "make lab\n", "not run: it needs a card"),
        Block("page.md", 19, "ipython", "%load_ext no\n", "raises: ValueError"),
        Block("page.md", 26, "output", "two\n  lines\n", ""),
    ]
    assert fenced_blocks.environment_of("page.md") == {"A": "1", "B": "two"}


@pytest.mark.parametrize(
    ("command", "wrong"),
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
def test_commands_are_told_what_they_name_wrongly(command: str, wrong: str) -> None:
    said = shell_commands.wrong_with(command)
    assert (len(said), wrong in "".join(said)) == (bool(wrong), True)


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("step 12 ms, 3 graphs, 64.0 MiB", True),
        ("step 1.2 s, 3 graphs, 63.0 MiB", True),  # a time, and what is within 5 %
        ("step   12 ms, 3 graphs, ...", True),
        ("...\nstep 12 ms, 3 graphs, 64.0 MiB", True),
        ("step 12 ms, 4 graphs, 64.0 MiB", False),
        ("step 12 ms, 3 graphs, 64.0 GiB", False),
        ("step 12 ms, 3 graphs", False),
    ],
)
def test_outputs_are_compared_but_for_times(shown: str, same: bool) -> None:
    block = Block("page.md", 1, "output", f"{shown}\n", "")
    if same:
        assert_shows(block, "step 12 ms, 3 graphs, 64.0 MiB\n")
    else:
        with pytest.raises(AssertionError):
            assert_shows(block, "step 12 ms, 3 graphs, 64.0 MiB\n")
