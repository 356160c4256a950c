"""Test the diagram of the parts against their table."""

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

from website import architecture

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = """
| part | contents | may import |
|---|---|---|
| `hpu_magic/a/` | the <top>: and so on | b, `habana_frameworks.torch`, c, d |
| `hpu_magic/b/` | middle | c |
| `hpu_magic/c/` | ground | d |
| `hpu_magic/d.py` | not drawn | nothing |
| `hpu_magic/simulator/` | stand-in | nothing |
"""


def drawing(page):
    return ElementTree.fromstring(architecture.drawn(page))


def test_parts_are_read_from_the_table():
    assert architecture.parts(TABLE) == {
        "a": ("the <top>: and so on", ("b", "c", "habana_frameworks.torch")),
        "b": ("middle", ("c",)),
        "c": ("ground", ()),
        "simulator": ("stand-in", ()),
        "habana_frameworks.torch": (
            "the vendor's package, or the simulator's face",
            ("simulator",),
        ),
    }


def test_implied_imports_are_not_drawn():
    assert drawing(TABLE).findtext("desc") == (
        "a imports b, habana_frameworks.torch; b imports c; "
        "habana_frameworks.torch imports simulator."
    )


def test_parts_are_above_their_imports_without_overlaps():
    boxes = {}
    for group in drawing(ARCHITECTURE).findall("g"):
        box, name = group.find("rect"), group.findtext("text[@class='name']")
        assert box is not None
        boxes[name] = [float(box.attrib[each]) for each in ("x", "y", "width", "height")]
    parts = architecture.parts(ARCHITECTURE)
    assert boxes.keys() == {name.partition(".")[0] for name in parts}
    for name, (_, below) in parts.items():
        for other in below:
            upper, lower = boxes[name.partition(".")[0]], boxes[other.partition(".")[0]]
            assert upper[1] < lower[1], (name, other)
    places = sorted(boxes.values(), key=lambda one: (one[1], one[0]))
    for (x, y, width, height), (other_x, other_y, *_) in itertools.pairwise(places):
        assert other_y >= y + height if other_y != y else other_x >= x + width


def test_each_package_folder_is_drawn():
    there = {path.parent.name for path in (ROOT / "hpu_magic").glob("*/__init__.py")}
    assert there - {"sessions"} <= architecture.parts(ARCHITECTURE).keys()


def test_page_contains_the_svg_instead_of_the_text_diagram():
    page = architecture.with_picture(ARCHITECTURE)
    assert page.count("<svg") == 1
    assert "┌" in ARCHITECTURE
    assert "┌" not in page.partition("| part |")[0]
    assert re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S) == re.sub(
        r"^```.*?^```$", "", ARCHITECTURE, flags=re.M | re.S
    )
