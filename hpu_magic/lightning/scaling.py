"""Losses that are scaled so that gradients of 16 bits do not vanish, as Lightning's own plug-in."""

from __future__ import annotations

from typing import Any


class ScaledLosses:
    """Leaves to Lightning's ``MixedPrecision`` what scaling concerns, with ``"16-mixed"``."""

    precision: str
    _mixed: Any

    def _scaler(self) -> Any:
        return self._mixed if self.precision == "16-mixed" else super()

    def pre_backward(self, *args: Any, **kwargs: Any) -> Any:
        """Scale the loss (``Trainer``)."""
        return self._scaler().pre_backward(*args, **kwargs)

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Run backward, of the scaled loss (``Fabric``)."""
        return self._scaler().backward(*args, **kwargs)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Take the scale from the gradients and step, unless one of them is not finite."""
        return self._scaler().optimizer_step(*args, **kwargs)

    def clip_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Clip the gradients (``Trainer``)."""
        return self._scaler().clip_gradients(*args, **kwargs)

    def unscale_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Take the scale from the gradients (``Fabric``)."""
        return self._scaler().unscale_gradients(*args, **kwargs)

    def state_dict(self) -> Any:
        """Return the scale and its history."""
        return self._scaler().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scale and its history."""
        self._scaler().load_state_dict(state_dict)
