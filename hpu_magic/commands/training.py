"""Training with a live panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from hpu_magic import fits
from hpu_magic.commands.parameters import Loader, Variable

if TYPE_CHECKING:
    from hpu_magic.fits.result import FitResult

Trainer = Annotated[Any, Variable("trainer")]
LightningModel = Annotated[Any, Variable("lightning_model")]
Panel = Literal["auto", "widget", "picture"]


def fit(
    trainer: Trainer,
    model: LightningModel = None,
    data: Loader = None,
    *,
    interval: float = fits.INTERVAL,
    panel: Panel = "auto",
    **arguments: Any,
) -> FitResult:
    """Run ``trainer.fit(model, data)`` or ``trainer.train()`` with a live panel.

    Parameters
    ----------
    trainer : lightning.pytorch.Trainer or transformers.Trainer
        A Trainer with any accelerator, or an instance of a subclass, such as ``GaudiTrainer`` or a
        trainer of trl.
    model : lightning.pytorch.LightningModule, optional
        The model; omit it for transformers' Trainer, which already has a model.
    data : DataLoader, LightningDataModule or pair of DataLoaders, optional
        Training data, or a pair of training and validation data; not needed if the model or the
        Trainer provides data.
    interval : float
        Seconds between two samples, 0.02 to 60. The panel is redrawn at most twice per second.
    panel : {"auto", "widget", "picture"}
        The live widget, a picture for front ends without widgets, or the best view that the page
        supports.
    **arguments
        Further arguments of ``trainer.fit`` or ``trainer.train``, such as ``ckpt_path`` or
        ``resume_from_checkpoint``.

    Raises
    ------
    HPUError
        An argument is invalid; the fit has not started.
    KeyboardInterrupt
        The fit was interrupted.
    """
    from hpu_magic.fits.fit import fit_with_callback
    from hpu_magic.fits.folded_frames import FoldedFrames

    results: list[FitResult] = []
    named = {"interval": interval, "panel": panel, "ended": results.append, **arguments}
    with FoldedFrames():
        fit_with_callback(trainer, model, data, **named)
    return results[0]
