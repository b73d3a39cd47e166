"""Words on pictures: a line under each, a time in its corner, and several of them side by side."""

import functools

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

Picture = UInt8[np.ndarray, "height width 3"]
INK, PAPER, GAP = (32, 36, 44), (250, 250, 248), (196, 200, 206)
LARGEST, SMALLEST = 17, 9  # pixels of letters
BORDER = 2  # pixels between pictures


def captioned(picture: Picture, left: str, right: str, corner: str) -> UInt8[np.ndarray, "page width 3"]:
    """A picture with a line under it and a few words in its upper right corner."""
    height, width = picture.shape[:2]
    size = _letters(width)
    page = Image.new("RGB", (width, height + bar(width)), PAPER)
    page.paste(Image.fromarray(picture))
    draw = ImageDraw.Draw(page)
    middle, edge = height + bar(width) // 2, size // 2
    font = _fitting(f"{left}  {right}", width - 2 * edge, size)
    draw.text((edge, middle), left, INK, font, anchor="lm")
    draw.text((width - edge, middle), right, INK, font, anchor="rm")
    if corner:
        small = _fitting(corner, width - 4 * edge, size - 1)
        x0, y0, x1, y1 = draw.textbbox((width - 2 * edge, edge), corner, small, anchor="rt")
        draw.rounded_rectangle((x0 - edge, y0 - edge // 2, x1 + edge, y1 + edge // 2 + 1), edge, PAPER)
        draw.text((width - 2 * edge, edge), corner, INK, small, anchor="rt")
    return np.asarray(page)


def bar(width: int) -> int:
    """Height of the line under a picture of some width."""
    return round(1.6 * _letters(width))


def tiled(pictures: list[Picture], columns: int) -> UInt8[np.ndarray, "down across 3"]:
    """Pictures of one size, side by side and then below each other, with thin lines between."""
    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    shape = (rows * (height + BORDER) - BORDER, columns * (width + BORDER) - BORDER, 3)
    sheet = np.full(shape, GAP, np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        y, x = row * (height + BORDER), column * (width + BORDER)
        sheet[y : y + height, x : x + width] = picture
    return sheet


def _letters(width: int) -> int:
    return int(np.clip(width // 15, SMALLEST, max(LARGEST, width // 90)))


@functools.cache
def _fitting(text: str, width: int, size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    """Pillow's own font, as large as the words allow."""
    for letters in range(size, SMALLEST, -1):
        font = ImageFont.load_default(letters)
        if font.getlength(text) <= width:
            return font
    return ImageFont.load_default(SMALLEST)
