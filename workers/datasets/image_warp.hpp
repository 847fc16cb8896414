// Images moved, sheared, turned and scaled: pixel (x, y) of the result is taken from (x', y') of the image, black where
// that is outside.
// Source:  an affine transform as in the Python Imaging Library (Pillow), with its rounding.
#pragma once

#include <cstdint>

#include "workers/datasets/byte_image.hpp"

namespace syncopate {

enum class Resampling { nearest, bilinear };

// x' = xx x + xy y + x0, y' = yx x + yy y + y0, of the pixels' centres, which lie at halves.
struct Warp {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  static Warp shear_x(double slope) { return {.xy = slope}; }  // rows move to the left, the more the lower
  static Warp shear_y(double slope) { return {.yx = slope}; }
  static Warp translation(double right, double down) { return {.x0 = -right, .y0 = -down}; }
  // Counter-clockwise around the image's centre, and larger by the factor.
  static Warp rotation(double degrees, const SampleShape& shape, double factor = 1);
};

void warp(const ByteImage& image, const Warp& how, Resampling resampling);

}  // namespace syncopate
