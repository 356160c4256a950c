"""Derive the stage, chart and goal of a logged metric from its name."""

from __future__ import annotations

import re

_STAGES = {
    "training": ("training", "train"),
    "validation": ("validation", "valid", "val", "dev", "eval"),
}
_PLAIN_NAMES = ("val_loss", "val/loss", "valid_loss", "validation_loss")
_VALIDATION_LOSS = re.compile(r"^(val|valid|validation)[_/ ]?.*loss", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LOW_IS_GOOD = re.compile(
    "loss(es)?|err(or)?|r?mse|mae|ms?le|mape|nll|b?ce|kld?|elbo|perplexity|ppl|wer|cer|fid|bp[dc]|"
    "brier|hinge"
)
_HIGH_IS_GOOD = re.compile(
    "acc(uracy)?|top|auc|auroc|auprc|roc|f|map|ap|ar|m?iou|dice|jaccard|score|precision|recall|"
    "sensitivity|specificity|r|bleu|rouge|meteor|psnr|ssim|mcc|kappa|ndcg|mrr|rewards?|hits?|em|"
    "correct|correlation|pearson|spearman"
)
_WITH_A_NUMBER = frozenset({"f", "r", "top"})
"""Words that name a score only if a number follows: f1, r2, top5."""


def metric_of(name: str, stage: str) -> str:
    """Return a metric's name without its stage (``training`` or ``validation``).

    For example, both ``val/acc`` and ``train_acc`` become ``acc``.
    """
    words = "|".join(_STAGES[stage])
    match = re.match(rf"(?:{words})[_/.\- ]+(?=\w)", name, re.IGNORECASE)
    if match:
        return name[match.end() :]
    match = re.search(rf"(?<=\w)[_/.\- ]+(?:{words})$", name, re.IGNORECASE)
    return name[: match.start()] if match else name


def is_validation_loss(name: str) -> bool:
    """Return whether a name is a common name for a validation loss."""
    return name in _PLAIN_NAMES or _VALIDATION_LOSS.match(name) is not None


def validation_loss(names: list[str]) -> str | None:
    """Return the name that is most likely the validation loss, or None."""
    plain = [name for name in _PLAIN_NAMES if name in names]
    return next(iter(plain + [name for name in names if is_validation_loss(name)]), None)


def goal_of(name: str) -> str | None:
    """Return whether a metric's goal is ``min`` or ``max`` based on its name, or None if unknown.

    Words for losses and errors take precedence, so the goal of ``map_loss`` is ``min``.
    """
    words = [word.lower() for word in [*_WORDS.findall(name), *re.split(r"[\W_]+", name)]]
    if any(map(_LOW_IS_GOOD.fullmatch, words)):
        return "min"
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if _HIGH_IS_GOOD.fullmatch(word) and (word not in _WITH_A_NUMBER or after.isdigit()):
            return "max"
    return None
