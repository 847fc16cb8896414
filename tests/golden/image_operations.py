"""Applies operations of torchvision and Pillow to two small images, and writes image_operations.json beside this file.

Run with an interpreter that has both (Debian: python3-torchvision): python3 image_operations.py
"""
import json
import math
import pathlib

import numpy as np
import PIL
import torchvision
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F


def image(channels, height, width, low, high):
    """An image (channels, height, width) that is smooth in one direction and busy in the other; values in [low,
    high]."""
    c, y, x = np.meshgrid(np.arange(channels), np.arange(height), np.arange(width), indexing="ij")
    return (low + (c * 57 + y * 19 + x * x * 7 + x * y * 3) % (high - low + 1)).astype(np.uint8)


IMAGES = {"colour": image(3, 12, 10, 0, 255), "grey": image(1, 11, 13, 20, 180), "flat": image(1, 6, 6, 77, 77)}


def to_pil(planes):
    return Image.fromarray(planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, 2))


def to_hex(result):
    array = np.asarray(result)
    planes = array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)
    return np.ascontiguousarray(planes).tobytes().hex()


def torchvision_affine(picture, shear, translate, center):
    return F.affine(picture, angle=0.0, translate=translate, scale=1.0, shear=shear,
                    interpolation=InterpolationMode.NEAREST, center=center)


def degrees(slope):
    return math.degrees(math.atan(slope))


def transformed(picture, matrix):
    return picture.transform(picture.size, Image.AFFINE, matrix, resample=Image.BILINEAR)


# name in the program: function of (image, strength)
NEAREST = {
    "shear_x": lambda p, s: torchvision_affine(p, [degrees(s), 0.0], [0, 0], [0, 0]),
    "shear_y": lambda p, s: torchvision_affine(p, [0.0, degrees(s)], [0, 0], [0, 0]),
    "translate_x": lambda p, s: torchvision_affine(p, [0.0, 0.0], [int(s), 0], None),
    "translate_y": lambda p, s: torchvision_affine(p, [0.0, 0.0], [0, int(s)], None),
    "rotate": lambda p, s: F.rotate(p, s, interpolation=InterpolationMode.NEAREST),
    "brightness": lambda p, s: F.adjust_brightness(p, s),
    "colour": lambda p, s: F.adjust_saturation(p, s),
    "contrast": lambda p, s: F.adjust_contrast(p, s),
    "sharpness": lambda p, s: F.adjust_sharpness(p, s),
    "posterize": lambda p, s: F.posterize(p, int(s)),
    "solarize": lambda p, s: F.solarize(p, s),
    "autocontrast": lambda p, s: F.autocontrast(p),
    "equalize": lambda p, s: F.equalize(p),
    "identity": lambda p, s: p,
}
BILINEAR = {
    "shear_x": lambda p, s: transformed(p, (1, s, 0, 0, 1, 0)),
    "shear_y": lambda p, s: transformed(p, (1, 0, 0, s, 1, 0)),
    "translate_x": lambda p, s: transformed(p, (1, 0, -s, 0, 1, 0)),
    "translate_y": lambda p, s: transformed(p, (1, 0, 0, 0, 1, -s)),
    "rotate": lambda p, s: p.rotate(s, resample=Image.BILINEAR),
    "brightness": lambda p, s: ImageEnhance.Brightness(p).enhance(s),
    "colour": lambda p, s: ImageEnhance.Color(p).enhance(s),
    "contrast": lambda p, s: ImageEnhance.Contrast(p).enhance(s),
    "sharpness": lambda p, s: ImageEnhance.Sharpness(p).enhance(s),
    "posterize": lambda p, s: ImageOps.posterize(p, int(s)),
    "solarize": lambda p, s: ImageOps.solarize(p, s),
    "autocontrast": lambda p, s: ImageOps.autocontrast(p),
    "equalize": lambda p, s: ImageOps.equalize(p),
}
STRENGTHS = {
    "shear_x": [0.09, -0.3], "shear_y": [0.21, -0.15], "translate_x": [3, -2], "translate_y": [1, -4],
    "rotate": [9, -30, 17.5], "brightness": [0.1, 0.73, 1.27, 1.9], "colour": [0.1, 0.73, 1.27, 1.9],
    "contrast": [0.1, 0.73, 1.27, 1.9], "sharpness": [0.1, 0.73, 1.27, 1.9], "posterize": [4, 7, 2],
    "solarize": [178.5, 40, 256], "autocontrast": [0], "equalize": [0], "identity": [0],
}


def main():
    cases = []
    for resampling, operations in {"nearest": NEAREST, "bilinear": BILINEAR}.items():
        for name, operation in operations.items():
            for strength in STRENGTHS[name]:
                for which, planes in IMAGES.items():
                    cases.append({"resampling": resampling, "operation": name, "strength": strength, "image": which,
                                  "pixels": to_hex(operation(to_pil(planes), strength))})
    table = {"torchvision": torchvision.__version__, "pillow": PIL.__version__,
             "images": {name: {"shape": list(planes.shape), "pixels": planes.tobytes().hex()}
                        for name, planes in IMAGES.items()},
             "cases": cases}
    cases = ",\n".join(json.dumps(case) for case in table.pop("cases"))
    text = json.dumps(table)[:-1] + ', "cases": [\n' + cases + "\n]}"
    pathlib.Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
