"""Values that dry runs compute from assumed selections, compared with those of real runs."""

import pytest

# In a real run, each mask is true, boxes do not overlap, and scores are in descending order.
OPERATORS = """
import torch

library = torch.library.Library("torchvision", "FRAGMENT")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.impl("nms", lambda boxes, scores, most: scores.argsort(descending=True), "CPU")

# Too many floating-point numbers for a dry run to keep their values.
scores = torch.linspace(1, 0.1, 20000).to("hpu")
keep = scores > 0
matrix = keep.view(200, 100)
classes = torch.arange(20000, device="hpu") % 7
few = torch.arange(3.0).to("hpu").expand(2, 3)
some = scores[:6].view(2, 3) > 0
boxes = scores[:, None].expand(-1, 4)
flags = classes > 3

def empty(*sizes):
    return torch.empty(sizes, dtype=torch.int64, device="hpu")

floats = scores.new_empty(0)
results = {
    "index": classes[keep],
    "index of rows": classes.view(200, 100)[keep[:200]],
    "index of a matrix": classes.view(200, 100)[matrix],
    "index of a copied mask": classes[keep.clone()],
    "index of a written mask": classes[torch.zeros_like(keep).copy_(keep)],
    "index of an out= mask": classes[torch.gt(scores, 0, out=torch.zeros_like(keep))],
    "index of columns": classes.view(200, 100)[:, keep[:100]],
    "index of mask": flags[keep],
    "index of bytes": classes.byte()[keep],
    "index of numbers": few[some],
    "mask on the host and mask": classes.view(200, 100)[torch.ones(200, dtype=torch.bool)][matrix],
    "nonzero": matrix.nonzero(),
    "nonzero of scores": scores.nonzero(),
    "where": classes[torch.where(keep)[0]],
    "where of a matrix": torch.where(matrix)[1],
    "argwhere": torch.argwhere(some),
    "nonzero to an empty tensor": torch.nonzero(matrix, out=empty(0)),
    "nonzero to a tensor": torch.nonzero(matrix, out=empty(20000, 2)),
    "nonzero to a smaller tensor": torch.nonzero(matrix, out=empty(5)),
    "nonzero to columns": torch.nonzero(matrix, out=empty(2, 20000).t()),
    "masked_select": classes.masked_select(keep),
    "masked_select to an empty tensor": torch.masked_select(classes, keep, out=empty(0)),
    "masked_select to a tensor": torch.masked_select(classes, keep, out=empty(20000)),
    "masked_select of rows": classes.view(200, 100).masked_select(keep[:100]),
    "masked_select of columns": classes[:100].masked_select(matrix),
    "nms": classes[torch.ops.torchvision.nms(boxes, scores, 0.5)],
    "sort": classes[scores.sort(descending=True)[1]],
    "sort of columns": matrix.float().sort(dim=0, stable=True)[1],
    "argsort": scores.view(200, 100).argsort(dim=0, descending=True),
    "sort of one": scores[0].sort()[1],
    "sort to tensors": torch.sort(scores, descending=True, out=(floats, empty(0)))[1],
    "unique": classes[keep].unique(),
    "counts": classes[keep].unique(return_counts=True)[1],
}
for name, result in results.items():
    values = result.cpu()
    layout = tuple(values.shape), result.stride(), values.dtype
    print(name, *layout, hash(tuple(values.flatten().tolist())))
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_values_equal_those_of_a_run_in_which_everything_is_selected(
    dry, forked_script, monkeypatch, lazy
):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    result, output = dry(OPERATORS)
    real = forked_script(OPERATORS, simulated=True, PT_HPU_LAZY_MODE=lazy)
    assert output.splitlines() == real.splitlines()
    assert result.error is None
    assert result.stand_ins == []
    lines = OPERATORS.splitlines()
    assumed = {line.code for line in result.assumed_shapes}
    first = lines.index("results = {") + 1
    with_masks = [code for code in lines[first : lines.index("}")] if "sort" not in code]
    assert assumed == {code.strip() for code in with_masks}
    assert len(result.assumed_indices) == 5
    assert "The operands of sort are assumed to be sorted." in result.notes()
    assert "topk" not in str(result)


WRONG = {
    "shape of a mask": "numbers.view(20, 10)[keep[:10]]",
    "shapes of a mask and indices": "numbers.view(20, 10)[keep[:20], numbers[:3]]",
    "dimensions of a mask": "numbers[keep.view(20, 10)]",
    "dtype of nonzero's out": "torch.nonzero(keep, out=scores.new_empty(0))",
    "dtype of masked_select's out": "torch.masked_select(numbers, keep, out=scores.new_empty(0))",
    "dtype of masked_select's mask": "torch.masked_select(numbers, scores)",
    "dtype of bincount": "torch.bincount(scores)",
    "shape of a written mask": "numbers.view(20, 10).clone().index_put_((keep[:10],), numbers[0])",
    "dtype of written values": "scores.clone().index_put_((keep,), scores.bfloat16())",
    "number of written values": "scores.clone().index_put_((numbers[:3],), scores[:2])",
    "dimension of topk": "scores.topk(3, dim=7)",
    "shapes of a sum": "scores + scores[:3]",
}


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_wrong_arguments_have_the_errors_of_a_real_run(dry, forked_script, monkeypatch, lazy):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    script = f"""
import torch

scores = torch.ones(200, device="hpu", requires_grad=True).detach() + torch.rand(200, device="hpu")
numbers, keep = torch.arange(200, device="hpu"), scores > 0
for code in {list(WRONG.values())}:
    try:
        print(code, eval(code).cpu().shape)
    except Exception as error:
        print(code, type(error), error)
"""
    _, output = dry(script)
    assert output.count("Error") == len(WRONG)
    assert output == forked_script(script, simulated=True, PT_HPU_LAZY_MODE=lazy)


SHAPES = (
    "rows.unique_consecutive(dim=0)",
    "rows.unique_consecutive(dim=-1)",
    "rows.unique_consecutive(return_inverse=True)[1]",
    "rows.unique(dim=1, return_inverse=True)[1]",
    "torch.where(keep.byte(), rows, rows)",
    "keep[:0, 0].long().bincount()",
    "keep[:0, 0].long().bincount(minlength=4)",
)


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_shapes_equal_those_of_a_run_in_which_all_elements_are_distinct(
    dry, forked_script, monkeypatch, lazy
):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    script = f"""
import torch

rows = torch.linspace(1, 0.1, 20000).to("hpu").view(200, 100)
keep = rows > 0
for code in {SHAPES}:
    print(code, eval(code).shape)
"""
    result, output = dry(script)
    assert result.error is None
    assert output == forked_script(script, simulated=True, PT_HPU_LAZY_MODE=lazy)


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_only_assumed_indices_are_counted(dry, monkeypatch, lazy):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    result, output = dry(
        """
        import torch
        from habana_frameworks.torch.core import mark_step
        known = torch.tensor([3.0, 1.0, 2.0], device="hpu") * 2
        print(known.argsort().tolist(), known.topk(2)[1].tolist())
        scores = torch.rand(20000, device="hpu")
        for _ in range(3):
            order = scores.argsort()
            best = scores.topk(2)
        del order, best
        mark_step()
        """
    )
    assert output == "[1, 2, 0] [0, 2]\n"
    counts = [(line.place, line.count) for line in result.assumed_indices]
    assert counts == [("train.py:8", 3), ("train.py:9", 3)]


def test_unknown_elements_stay_unknown(dry):
    result, output = dry(
        """
        import torch
        scores = torch.rand(20000, device="hpu")
        keep = scores > 0.5
        labels = torch.randint(5, (20000,), device="hpu") + scores.long()
        print(labels[keep].unique().shape, labels[keep][0].item(), scores[keep][0].item())
        experts = torch.nn.functional.one_hot(scores.view(200, 100).argmax(1), 4)
        classes = torch.arange(200, device="hpu")
        chosen = classes[torch.where(experts[:, 1])[0]]
        print(chosen.shape, chosen[-1].item())
        many = torch.arange(1 << 21, device="hpu")
        print(many[torch.rand(1 << 21, device="hpu") > 0.5][-1].item())
        """
    )
    assert output.splitlines() == [
        "torch.Size([20000]) 0 1.0",
        "torch.Size([50]) 0",
        "0",
    ]
    assert sum(line.count for line in result.stand_ins) == 4


MASKS = {
    "and": "known & assumed",
    "and of a cast": "(known & assumed).int().bool()",
    "written": "assumed.clone().logical_and_(known)",
    "product": "(known.int() * assumed.int()).bool()",
    "where": "torch.where(known, assumed, False)",
    "filled": "assumed.masked_fill(~known, False)",
}


@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_elements_that_a_known_mask_excludes_are_not_selected(dry, monkeypatch, mask, lazy):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    result, output = dry(
        f"""
        import torch
        labels = torch.tensor([1, -100, 2, 3], device="hpu")
        known, assumed = labels != -100, torch.rand(4, device="hpu") >= 0
        mask = {mask}
        for found in (labels[mask], labels.masked_select(mask), labels[torch.where(mask)[0]]):
            print(torch.bincount(found, minlength=10).shape)
        """
    )
    assert output == "torch.Size([10])\n" * 3
    assert result.error is None


def test_loop_over_the_classes_of_detections_runs_once_for_each_class(dry):
    """As in torchvision's `batched_nms` in the evaluation of Faster R-CNN."""
    result, output = dry(
        """
        import torch

        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        logits = torch.randn(400, 21, device="hpu")
        boxes = torch.randn(400, 21, 4, device="hpu").exp()
        labels = torch.arange(21, device="hpu").view(1, -1).expand_as(logits)
        boxes, scores = boxes[:, 1:].reshape(-1, 4), logits.softmax(-1)[:, 1:].reshape(-1)
        labels = labels[:, 1:].reshape(-1)
        for keep in (torch.where(scores > 0.05)[0], boxes[:, 0] > 0.01):
            boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
        kept = torch.zeros_like(scores, dtype=torch.bool)
        sizes = []
        for each in torch.unique(labels):
            found = torch.where(labels == each)[0]
            kept[found[torch.ops.torchvision.nms(boxes[found], scores[found], 0.5)]] = True
            sizes.append(len(found))
        keep = torch.where(kept)[0]
        keep = keep[scores[keep].sort(descending=True)[1]][:100]
        print(len(sizes), set(sizes), sorted(set(labels[keep].tolist())), boxes[keep].shape)
        """
    )
    assert output == f"20 {{400}} {list(range(1, 21))} torch.Size([100, 4])\n"
    assert result.stand_ins == []


def test_permutation_by_random_numbers_has_a_mask_of_known_size(dry):
    _, output = dry(
        """
        import torch
        noise = torch.rand(64, 196, device="hpu")
        shuffled = noise.argsort(dim=1)
        mask = (shuffled.argsort(dim=1) >= 49)
        patches = torch.randn(64, 196, 8, device="hpu")
        print(mask.sum().item(), patches[mask].shape, patches[~mask].shape)
        """
    )
    assert output == "9408 torch.Size([9408, 8]) torch.Size([3136, 8])\n"
