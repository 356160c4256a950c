"""The HTML page of a dry run, in Chromium."""

import pytest
from lab_page import faint_texts

from hpu_magic import command_line

pytestmark = pytest.mark.browser

SCRIPT = """
import torch
from torch import nn

layers = [nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True) for _ in range(24)]
model = nn.Sequential(*layers).to("hpu")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.ones(32, 1024, 2048, device="hpu")).sum().backward()
    optimizer.step()
    print(model[0].linear1.weight.sum().item())
"""

# Sizes in GiB that a script allocates on a card until its memory is full.
SIZES = {
    "little too much": 97 * [1],
    "much too much": [64, 1024],
    "most at the start": [95, -95, 1, 2, 4, 8, 128],  # a negative size releases all tensors
}
# Returns pairs of texts that share an area of at least two by three pixels.
OVERLAPPING = """texts => texts.flatMap((one, index) => texts.slice(index + 1).filter(other => {
  const [a, b] = [one, other].map(each => each.getBoundingClientRect());
  const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  return width > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
}).map(other => [one.textContent, other.textContent]))"""


def page_of(code, folder):
    script, page = folder / "train.py", folder / "page.html"
    script.write_text(code)
    assert command_line.main(["dry-run", "--html", str(page), str(script)]) == 1  # out of memory
    return page


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return page_of(SCRIPT, tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("width", [700, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_legible_in_both_color_schemes(browser, path, scheme, width):
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(path.as_uri())
    for closed in page.locator("details").all():
        closed.evaluate("each => { each.open = true }")
    color = page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    assert color == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}[scheme]
    assert page.locator("svg text", has_text="limit").count() == 2
    assert faint_texts(page, "body") == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    context.close()


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_labels_of_a_full_card_do_not_overlap(browser, tmp_path, sizes):
    code = f"""
import torch
tensors = []
for size in {sizes}:
    if size < 0:
        tensors.clear()
    else:
        tensors.append(torch.empty(size * 2**30, dtype=torch.uint8, device="hpu"))
"""
    path = page_of(code, tmp_path)
    for width in (700, 1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(path.as_uri())
        labels = page.locator("svg text")
        assert labels.filter(has_text="limit").count() == 2
        assert labels.evaluate_all(OVERLAPPING) == []
        page.close()
