#!/usr/bin/env python3
"""Runs the rivals of run.py: one a process, bound to one core. Prints {"rate": images a CPU-second}; exits 3 if it is
not installed.

    build/bench-venv-decode/bin/python bench/decode/rivals.py pillow train FOLDER --seconds 5

All turn the JPEGs of a folder, from memory, into float32 [3, 224, 224], normalised: `train` by RandomResizedCrop(0.08-1, 3/4-4/3) and a flip, `eval` by
resizing the shorter side to 256 (antialiased where the library can) and cutting out the centre.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/diagnose/rivals"))

from rival_images import crop_box

MISSING = 3
SIDE, SHORTER = 224, 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Work = Callable[[int], object]  # so many images


def covered(width: int, height: int) -> tuple[int, int]:
    """Returns the size with which the shorter side is as wanted."""
    return (SHORTER, SHORTER * height // width) if width <= height else (SHORTER * width // height, SHORTER)


def normalised(pixels: Any, flip: bool) -> Any:
    import numpy as np

    if flip:
        pixels = pixels[:, ::-1]
    scale = 1 / (255 * np.array(STD, np.float32))
    return np.ascontiguousarray(
        (pixels * scale - np.array(MEAN, np.float32) / np.array(STD, np.float32)).transpose(2, 0, 1)
    )


def pillow(files: list[bytes], mode: str) -> Work:
    import numpy as np
    from PIL import Image

    def one(data: bytes) -> Any:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        if mode == "train":
            left, top, w, h = crop_box(*image.size)
            image = image.crop((left, top, left + w, top + h)).resize((SIDE, SIDE), Image.BILINEAR)
            return normalised(np.asarray(image, np.float32), random.random() < 0.5)
        image = image.resize(covered(*image.size), Image.BILINEAR)
        left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
        return normalised(np.asarray(image.crop((left, top, left + SIDE, top + SIDE)), np.float32), False)

    return lambda count: [one(files[i % len(files)]) for i in range(count)]


def with_opencv(decode: Callable[[bytes], Any], files: list[bytes], mode: str) -> Work:
    import cv2

    cv2.setNumThreads(1)

    def one(data: bytes) -> Any:
        image = decode(data)
        height, width = image.shape[:2]
        if mode == "train":
            left, top, w, h = crop_box(width, height)
            how = cv2.INTER_AREA if w > SIDE else cv2.INTER_LINEAR
            return normalised(
                cv2.resize(image[top : top + h, left : left + w], (SIDE, SIDE), interpolation=how),
                random.random() < 0.5,
            )
        image = cv2.resize(image, covered(width, height), interpolation=cv2.INTER_AREA)
        top, left = (image.shape[0] - SIDE) // 2, (image.shape[1] - SIDE) // 2
        return normalised(image[top : top + SIDE, left : left + SIDE], False)

    return lambda count: [one(files[i % len(files)]) for i in range(count)]


def opencv(files: list[bytes], mode: str) -> Work:
    import cv2
    import numpy as np

    return with_opencv(
        lambda data: cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB),
        files,
        mode,
    )


def simplejpeg(files: list[bytes], mode: str) -> Work:
    import simplejpeg as codec

    return with_opencv(lambda data: codec.decode_jpeg(data, "RGB"), files, mode)


def dali(files: list[bytes], mode: str) -> Work:
    import numpy as np
    from nvidia.dali import fn, pipeline_def, types

    batch = 32
    arrays = [np.frombuffer(data, np.uint8) for data in files]

    @pipeline_def(batch_size=batch, num_threads=1, device_id=None)  # type: ignore[misc, unused-ignore]
    def made() -> Any:
        encoded = fn.external_source(
            source=lambda info: arrays[info.idx_in_epoch % len(arrays)], batch=False, dtype=types.UINT8
        )
        if mode == "train":
            images = fn.decoders.image_random_crop(
                encoded, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
            )
            images = fn.resize(images, size=[SIDE, SIDE])
            mirror = fn.random.coin_flip(probability=0.5)
        else:
            images = fn.resize(fn.decoders.image(encoded, device="cpu"), size=SHORTER, mode="not_smaller")
            mirror = 0
        return fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            crop=(SIDE, SIDE),
            mirror=mirror,
            mean=[255 * m for m in MEAN],
            std=[255 * s for s in STD],
        )

    pipeline = made()
    pipeline.build()
    return lambda count: [pipeline.run() for _ in range(count // batch)]


def spdl(files: list[bytes], mode: str) -> Work:
    import numpy as np
    import simplejpeg
    import spdl.io

    def graph(data: bytes) -> str:
        if mode == "eval":
            return f"scale={SHORTER}:{SHORTER}:force_original_aspect_ratio=increase,crop={SIDE}:{SIDE}"
        # This decoder's filters do not draw crops, so the header is read before.
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        left, top, w, h = crop_box(width, height)
        return f"crop={w}:{h}:{left}:{top}:exact=1,scale={SIDE}:{SIDE}" + (",hflip" if random.random() < 0.5 else "")

    def one(data: bytes) -> Any:
        frames = spdl.io.decode_packets(spdl.io.demux_image(data), filter_desc=graph(data) + ",format=pix_fmts=rgb24")
        return normalised(np.asarray(spdl.io.to_numpy(spdl.io.convert_frames(frames))), False)

    return lambda count: [one(files[i % len(files)]) for i in range(count)]


RIVALS: dict[str, Callable[[list[bytes], str], Work]] = {
    "pillow": pillow,
    "opencv": opencv,
    "simplejpeg": simplejpeg,
    "dali": dali,
    "spdl": spdl,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rival", choices=RIVALS)
    parser.add_argument("mode", choices=("train", "eval"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=5, help="CPU-seconds to work for, at least")
    options = parser.parse_args()
    files = [path.read_bytes() for path in sorted(options.folder.glob("*.jpg"))]
    random.seed(1)
    try:
        work = RIVALS[options.rival](files, options.mode)
        work(32)  # warm
    except (ImportError, OSError) as error:
        print(json.dumps({"missing": str(error).splitlines()[0]}))
        return MISSING
    done, began = 0, time.process_time()
    while time.process_time() - began < options.seconds:
        work(32)
        done += 32
    print(json.dumps({"rate": done / (time.process_time() - began)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
