// Images with other tones, in place. Source: the operations of these names in the Python Imaging Library (Pillow), with
// its rounding; images of one channel are its grey ones, and those of three its coloured ones.
#pragma once

#include "workers/datasets/byte_image.hpp"

namespace syncopate {

void posterize(const ByteImage& image, int bits);         // only so many of the highest stay, 0 to 8
void solarize(const ByteImage& image, double threshold);  // pixels of at least the threshold are inverted
void autocontrast(const ByteImage& image);                // each channel stretched over 0 .. 255
void equalize(const ByteImage& image);                    // each channel's histogram made flat

// Factor 1 leaves the image as it is, 0 leaves: black; the mean of its grey; its grey; a smoothed image. Between and
// beyond, a straight line, cut at 0 and 255.
void brightness(const ByteImage& image, double factor);
void contrast(const ByteImage& image, double factor);
void colour(const ByteImage& image, double factor);  // of one channel: nothing
void sharpness(const ByteImage& image, double factor);

}  // namespace syncopate
