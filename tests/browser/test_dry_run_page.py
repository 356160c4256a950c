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


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    script, page = folder / "train.py", folder / "page.html"
    script.write_text(SCRIPT)
    assert command_line.main(["dry-run", "--html", str(page), str(script)]) == 1  # out of memory
    return page


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
