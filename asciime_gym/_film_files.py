"""Pictures in a row as a file: an animated GIF, or an MP4."""

import importlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from ._atomic import replacing

Picture = UInt8[np.ndarray, "height width 3"]
COLORS = 64  # of a GIF, in all: fewer bytes than 256, and no worse to look at
COLORFUL = 40  # that the parts of a colour differ by, of 255; grey is less
SAMPLES = 12  # pictures that its colours are taken from
HOLD = 0.8  # seconds that the last picture of a GIF stays before it begins again
TICK = 10  # milliseconds, which a GIF counts time in
FASTEST = 50  # pictures of a GIF a second; browsers show those that are briefer far too long
QUALITY = 20  # x264's; less is better


def write_gif(path: str | os.PathLike, pictures: Iterable[Picture], fps: float):
    """An animated GIF that begins again at its end."""
    images = [Image.fromarray(picture) for picture in pictures]
    colors = _colors(images)
    # One set of colours and no dithering: what stands still stays the same to the bit, and takes no room.
    painted = [image.quantize(palette=colors, dither=Image.Dither.NONE) for image in images]
    durations = _durations(len(painted), fps)
    with replacing(path) as temporary:
        options: dict[str, Any] = {"append_images": painted[1:], "duration": durations, "loop": 0, "optimize": False}
        painted[0].save(temporary, format="GIF", save_all=True, **options)


def _colors(images: list[Image.Image]) -> Image.Image:
    """An image of the colours that serve all of them: half for the robot, which is small, half for all that is grey."""
    some = np.linspace(0, len(images) - 1, min(SAMPLES, len(images))).round().astype(int)
    pixels = np.concatenate([np.asarray(images[i]).reshape(-1, 3) for i in some])
    colorful = np.ptp(pixels, axis=1) > COLORFUL
    chosen = [_palette(part, COLORS // 2) for part in (pixels[colorful], pixels[~colorful])]
    image = Image.new("P", (1, 1))
    image.putpalette(np.concatenate(chosen).tobytes())
    return image


def _palette(pixels: UInt8[np.ndarray, "pixels 3"], count: int) -> UInt8[np.ndarray, "colors 3"]:
    """At most so many colours that are near to all of these."""
    if not len(pixels):
        return np.zeros((0, 3), np.uint8)
    found = Image.fromarray(pixels[None]).quantize(count, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    return np.array(found.getpalette(), np.uint8).reshape(-1, 3)[:count]


def _durations(count: int, fps: float) -> list[int]:
    """Milliseconds of each picture: whole ticks, whose sum is right whatever their rounding; the last one stays."""
    ends = np.round(np.arange(1, count + 1) * 1000 / fps / TICK).astype(int) * TICK
    durations = np.diff(ends, prepend=0)
    durations[-1] += int(1000 * HOLD)
    return durations.tolist()


def write_mp4(path: str | os.PathLike, pictures: Iterable[Picture], fps: float):
    """An MP4 that browsers and telephones can play."""
    frames = iter(pictures)
    first = _even(next(frames))
    height, width = first.shape[:2]
    raw = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:.6f}", "-i", "-")
    coded = ("-an", "-c:v", "libx264", "-crf", str(QUALITY), "-pix_fmt", "yuv420p", "-movflags", "+faststart")
    with replacing(path) as temporary:
        command = [ffmpeg(), "-y", "-loglevel", "error", *raw, *coded, "-f", "mp4", str(temporary)]
        _pipe(command, itertools.chain([first], map(_even, frames)), path)


def _pipe(command: list[str], pictures: Iterator[Picture], path: str | os.PathLike):
    """Gives a program pictures, and says what it says if it fails."""
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said) as process:
            assert process.stdin is not None
            try:
                for picture in pictures:
                    process.stdin.write(picture.tobytes())
                process.stdin.close()
            except BrokenPipeError:  # it ended early, and its exit code says that
                pass
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            words = said.read().decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise OSError(f"{path}: ffmpeg ({command[0]}) could not write it: {words[-1]}")


def _even(picture: Picture) -> UInt8[np.ndarray, "even_height even_width 3"]:
    """A picture of even width and height, which the format needs."""
    height, width = picture.shape[:2]
    return np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def ffmpeg() -> str:
    """The program that writes films: the system's, or the one that comes with imageio-ffmpeg."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        return str(Path(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()))
    except (ImportError, RuntimeError) as error:
        raise FileNotFoundError(
            "an .mp4 is written by ffmpeg, which is not here: `apt install ffmpeg`, or `pip install imageio-ffmpeg` "
            "(part of asciime_gym[mujoco]); a .gif needs neither"
        ) from error
