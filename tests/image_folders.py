"""Small folders of JPEG files."""

import numpy as np
from PIL import Image


def save_image(path, size, seed):
    """Write a JPEG file with a smooth image of random colors."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    small.resize(size, Image.Resampling.BILINEAR).save(path, quality=95)


def write_folder(root, images, classes=("first", "second")):
    """Write images of different widths for each class, and return the folder."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(images):
            path = root / name / f"{number}.jpg"
            save_image(path, (20 + number, 10), 100 * label + number)
    return root
