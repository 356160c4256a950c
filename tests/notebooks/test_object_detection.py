"""Test the object detection notebook: its outputs, and the functions that it defines."""

import base64
import io
import re
from typing import Any

import pytest
import torch
from executed_notebook import COMPLETE, execute, source
from PIL import Image

# Two fits and two workers on a busy machine.
pytestmark = pytest.mark.timeout(600)


SHORTER = {
    "documents(1000, 320": "documents(1000, 80",
    "max_epochs=8": "max_epochs=4",
    "scores[column, row] > 0.3": "scores[column, row] > 0",
}


@pytest.fixture(scope="module")
def detection(tmp_path_factory, forked_kernels):
    with forked_kernels(engines=True):
        return execute("object_detection", tmp_path_factory.mktemp("detection"), SHORTER)


@pytest.fixture(scope="module")
def parts():
    """The functions of the notebook, on the CPU."""
    cells = {cell.id: cell.source for cell in source("object_detection").cells}
    namespace: dict[str, Any] = {}
    drawn = cells["data"].partition("train_pages =")[0]
    for code in (cells["draw"], drawn, *map(cells.get, ("boxes", "network", "loss", "precision"))):
        exec(code, namespace)
    return namespace


def test_executed_notebook_is_small_without_warnings(detection):
    assert detection.warnings() == []
    assert detection.grown() < 160_000  # with two pictures in addition to the panel


def test_device_and_cpu_have_equal_losses(detection):
    assert re.fullmatch(r"\{'train_loss': \d\.\d+\}", detection.text("cpu"))
    assert detection.text("card").splitlines()[0] == detection.text("cpu")


def test_fallback_is_shown_with_its_line_and_fixed(detection):
    network = source("object_detection").cells
    [code] = [cell.source for cell in network if cell.id == "network"]
    [line] = [n for n, text in enumerate(code.splitlines(), 1) if "shrink(1 - pages" in text]
    operator = "aten::_upsample_bilinear2d_aa.out"
    assert f"8 CPU fallbacks ({operator}, In [5], line {line})" in detection.text("card")
    assert "CPU fallback" not in detection.text("fix")
    shown = detection.text("fix-costs")
    assert f"CPU fallbacks: {{'{operator}': 8}} -> {{}}" in shown
    before, after = map(int, re.findall(r"synchronizations: (\d+) -> (\d+)", shown)[0])
    assert before - after == 8


def test_padded_boxes_need_one_graph(detection):
    assert "1 graph compiled" in detection.text("shapes-padded")
    assert "3 graphs compiled" in detection.text("shapes-ragged")
    assert "([1, 1, 2, 2], [1, 1, 1, 2], [1, 1, 3, 2], In" in detection.text("shapes-ragged")


def test_detector_finds_signatures(detection):
    mean, loose = map(float, re.findall(r"\d\.\d+", detection.text("score"))[::2])
    if COMPLETE:
        assert loose > 0.85
        assert mean > 0.35
    assert mean > 0
    assert mean < loose


def test_found_boxes_are_drawn(detection):
    for cell_id, colour in (("data", (0, 104, 181)), ("found", (196, 50, 10))):
        [cell] = [cell for cell in detection.notebook.cells if cell.id == cell_id]
        data = base64.b64decode(cell.outputs[-1].data["image/png"])
        with Image.open(io.BytesIO(data)) as picture:
            assert picture.size == (4 * 256 + 3 * 8, 256)
            pixels = torch.tensor(list(picture.convert("RGBA").tobytes())).view(-1, 4)
        framed = ((pixels[:, :3] - torch.tensor(colour)).abs().amax(1) < 24).sum()
        assert framed > 500
        assert (pixels[:, 3] == 0).sum() == 3 * 8 * 256  # transparent between the pages


def test_two_cards_have_equal_precision(detection):
    [steps] = {int(each) for each in re.findall(r"(\d+) +[\d.]+ steps/s", detection.text("cards"))}
    assert steps == 3 * (320 if COMPLETE else 80) // 8
    first, second = re.findall(r"\d\.\d{3}", detection.text("cards-score"))
    assert first == second
    if COMPLETE:
        assert float(first) > 0.6


def overlap(one, other):
    """Return the intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(common / (sum(areas) - common))


def random_boxes(pages, count, generator):
    corner = torch.randint(0, 6, (pages, count, 2), generator=generator)
    size = torch.randint(2, 7, (pages, count, 2), generator=generator)
    return torch.cat([corner, corner + size], -1).float()


@pytest.mark.parametrize("seed", range(5))
def test_overlap_and_suppression_match_their_definitions(parts, seed):
    generator = torch.Generator().manual_seed(seed)
    boxes = random_boxes(3, 9, generator)
    scores = torch.rand(3, 9, generator=generator).sort(descending=True).values
    expected = [[[overlap(a, b) for b in page] for a in page] for page in boxes.tolist()]
    assert torch.allclose(parts["iou"](boxes, boxes), torch.tensor(expected))
    kept = torch.zeros_like(scores)
    for number, page in enumerate(boxes.tolist()):
        chosen: list[Any] = []
        for place, box in enumerate(page):
            if all(overlap(box, other) <= 0.4 for other in chosen):
                chosen.append(box)
                kept[number, place] = scores[number, place]
    assert torch.equal(parts["nms"](boxes, scores, 0.4), kept)
    assert 0 < (kept == 0).sum() < kept.numel()


def average_precision(found, truth, threshold):
    """Return COCO's average precision, computed box by box."""
    ranked = []
    for page, (boxes, real) in enumerate(zip(found, truth, strict=True)):
        taken: set[int] = set()
        for score, box in boxes:
            open_ones = [(overlap(box, one), -n) for n, one in enumerate(real) if n not in taken]
            best, number = max(open_ones, default=(0.0, 0))
            if best >= threshold:
                taken.add(-number)
            ranked.append((-score, page, best >= threshold))
    total, right, curve = sum(map(len, truth)), 0, []
    for count, (_, _, hit) in enumerate(sorted(ranked), 1):
        right += hit
        curve.append((right / total, right / count))
    best_from = [
        max((precision for recall, precision in curve if recall >= share / 100), default=0.0)
        for share in range(101)
    ]
    return sum(best_from) / 101


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_matches_coco(parts, seed):
    generator = torch.Generator().manual_seed(seed)
    boxes, truth = random_boxes(7, 6, generator), random_boxes(7, 4, generator)
    scores = torch.rand(7, 6, generator=generator).sort(descending=True).values
    scores[torch.rand(7, 6, generator=generator) < 0.3] = 0  # suppressed
    truth[torch.rand(7, 4, generator=generator) < 0.4] = 0  # padding
    found = [
        [(score, box) for score, box in zip(*page, strict=True) if score]
        for page in zip(scores.tolist(), boxes.tolist(), strict=True)
    ]
    real = [[box for box in page if box[2]] for page in truth.tolist()]
    thresholds = torch.tensor([0.25, 0.45, 0.7])
    actual = parts["average_precision"](boxes, scores, truth, thresholds)
    expected = [average_precision(found, real, each) for each in thresholds.tolist()]
    assert actual.tolist() == pytest.approx(expected, abs=1e-6)
    assert min(expected[:2]) > 0


def test_pages_depend_only_on_their_number(parts):
    page, boxes = parts["draw_page"](3)
    again, same = parts["draw_page"](3)
    other, _ = parts["draw_page"](4)
    assert page.tobytes() == again.tobytes() != other.tobytes()
    assert boxes == same
    pages, padded = parts["documents"](0, 40, batch_size=40).dataset.tensors
    assert pages.shape == (40, 1, 256, 256)
    assert {int(count) for count in (padded[..., 2] > 0).sum(1)} == {1, 2, 3, 4}
    # Each box is within its page, and there are dark pixels along all four sides of the box.
    for sheet, frames in zip(pages[:, 0], padded, strict=True):
        for left, top, right, bottom in frames[frames[:, 2] > 0].tolist():
            assert 0 < left < right < 256
            assert 0 < top < bottom < 256
            dark = sheet[int(top) - 1 : int(bottom) + 2, int(left) - 1 : int(right) + 2] < 60
            rows, columns = dark.any(1).nonzero(), dark.any(0).nonzero()
            assert rows.min() <= 3
            assert columns.min() <= 3
            assert rows.max() >= dark.shape[0] - 4
            assert columns.max() >= dark.shape[1] - 4


def test_loss_is_zero_for_the_exact_boxes(parts):
    # The loss is close to zero only for the correct offsets and scores.
    anchors = parts["anchor_boxes"]()
    assert anchors.shape == (1344, 4)
    boxes = torch.tensor([[[40.0, 60, 110, 90], [150, 150, 190, 170], [0, 0, 0, 0]]])
    overlaps = parts["iou"](parts["corners"](anchors, torch.zeros_like(anchors))[None], boxes)
    best, number = overlaps.max(2)
    box = boxes[0][number[0]]
    offsets = torch.cat(
        [
            ((box[:, :2] + box[:, 2:]) / 2 - anchors[:, :2]) / anchors[:, 2:],
            ((box[:, 2:] - box[:, :2]).clamp(min=1) / anchors[:, 2:]).log(),
        ],
        -1,
    )[None]
    near = best > 0.5
    assert near.sum() > 0
    assert torch.allclose(parts["corners"](anchors, offsets)[near], box[None][near], atol=1e-3)
    # A box without an anchor of overlap 0.5 is assigned to the nearest anchors.
    nearest = (overlaps[..., :2] == overlaps[..., :2].amax(1, keepdim=True)).any(2)
    sure = torch.where(near | nearest, 12.0, -12.0)
    loss = parts["detection_loss"](sure, offsets, anchors, boxes)
    assert loss.item() < 1e-3
    assert parts["detection_loss"](-sure, offsets, anchors, boxes).item() > 1
    assert parts["detection_loss"](sure, offsets + 0.1, anchors, boxes).item() > 0.1
