"""Code for scripts that record the functions that tensor subclasses and modes receive."""

SEEN = """
from torch.overrides import TorchFunctionMode

seen = []

class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})

class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function)
        return function(*args, **(kwargs or {}))
"""
