"""Operators of the media pipeline."""

from habana_frameworks.mediapipe._readers import CocoReader as CocoReader
from habana_frameworks.mediapipe._readers import MediaExtReaderOp as MediaExtReaderOp
from habana_frameworks.mediapipe._readers import ReadImageDatasetFromDir as ReadImageDatasetFromDir
from habana_frameworks.mediapipe._transforms import Cast as Cast
from habana_frameworks.mediapipe._transforms import Crop as Crop
from habana_frameworks.mediapipe._transforms import CropMirrorNorm as CropMirrorNorm
from habana_frameworks.mediapipe._transforms import ImageDecoder as ImageDecoder
from habana_frameworks.mediapipe._transforms import MediaConst as MediaConst
from habana_frameworks.mediapipe._transforms import MediaExtCpuOp as MediaExtCpuOp
from habana_frameworks.mediapipe._transforms import MediaFunc as MediaFunc
from habana_frameworks.mediapipe._transforms import RandomFlip as RandomFlip
from habana_frameworks.mediapipe._transforms import Resize as Resize

_AVAILABLE = sorted(name for name in dir() if name[0].isupper())


def __getattr__(name: str) -> None:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(
        f"The simulator's media pipeline does not include the operator {name}; use "
        f"{', '.join(_AVAILABLE)}, or compute it in a MediaExtCpuOp."
    )
