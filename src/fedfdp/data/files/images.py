"""Images, one folder per class, all of one size and colour mode; pixels are scaled from 0…255 to [−1, 1].

An image that does not fit the first one raises a DataError that names it; none is resized, cropped or converted.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedfdp.core.errors import DataError
from fedfdp.data.files.paths import IMAGES
from fedfdp.data.files.sorted import Sorted, files_in
from fedfdp.data.files.source import Piece

CHANNELS = {"L": 1, "RGB": 3}
PIECE = 256  # images decoded at once
MOST_PIXELS = 1 << 26  # a larger image is no training image


def images_in(folder: Path, top: Path) -> list[Path]:
    return files_in(folder, top, IMAGES)


def shape_of(path: Path) -> tuple[int, int, int]:
    """(channels, height, width), from the header alone."""
    with _opened(path) as image:
        if image.mode not in CHANNELS:
            raise DataError(f"{path}: colour mode {image.mode}; save it as greyscale (L) or RGB")
        width, height = image.size
        return CHANNELS[image.mode], height, width


def decoded(paths: list[Path], like: Path, shape: tuple[int, int, int]) -> Iterator[NDArray[np.float32]]:
    """The images in order, some at a time; each must have the shape of the image `like`."""
    for start in range(0, len(paths), PIECE):
        some = paths[start : start + PIECE]
        piece = np.empty((len(some), *shape), np.float32)
        for row, path in enumerate(some):
            found = shape_of(path)
            if found != shape:
                fix = "resize or convert it"
                raise DataError(f"{path}: {_words(found)}, where {like.name} is {_words(shape)}; {fix}")
            with _opened(path) as image:
                try:
                    pixels = np.asarray(image, np.float32)
                except (OSError, SyntaxError, ValueError) as error:
                    raise DataError(f"{path}: damaged ({error!s:.80}); copy it again or remove it") from None
            piece[row] = pixels.reshape(*shape[1:], shape[0]).transpose(2, 0, 1)
        yield piece / np.float32(127.5) - np.float32(1)


def _opened(path: Path) -> Image.Image:
    if path.stat().st_size == 0:
        raise DataError(f"{path}: empty (0 bytes); copy it again or remove it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(path)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: not an image that can be read ({type(error).__name__}); remove it") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise DataError(f"{path}: declares too many pixels: a decompression bomb? Remove it") from None
    if image.size[0] * image.size[1] > MOST_PIXELS:
        raise DataError(f"{path}: {image.size[0]}×{image.size[1]} pixels, at most {MOST_PIXELS:,} are read; resize it")
    return image


def _words(shape: tuple[int, int, int]) -> str:
    return f"{shape[2]}×{shape[1]} {'grey' if shape[0] == 1 else 'RGB'}"


@dataclass(frozen=True, eq=False)
class ImageSource(Sorted):
    """A folder of images, sorted by class."""

    dtype: type[np.generic] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.first)

    def pieces(self) -> Iterator[Piece]:
        shape = shape_of(self.first)
        for code, paths in self.coded("image"):
            for x in decoded(list(paths), self.first, shape):
                yield Piece(x, None if code is None else np.full(len(x), code, np.int64))
