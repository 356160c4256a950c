"""Lists of image files."""

from __future__ import annotations

import os
from collections.abc import Sequence


def get_max_file(img_list: Sequence[str]) -> str:
    """Return the path of the largest file, which determines the size of a card's decoder buffers.

    Raises
    ------
    ValueError
        The list is empty.
    """
    if not len(img_list):
        raise ValueError("The list of images is empty; pass at least one path.")
    return max(img_list, key=os.path.getsize)
