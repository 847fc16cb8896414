// Training images that are changed at random each time they are met, as bytes, before they are normalised: so what
// comes in from beyond the border is black, not the mean. In this order: a crop of the image in a frame of zeros; a
// flip; a rotation with a zoom; RandAugment.
// Source:  crop and flip as for CIFAR in He et al. 2016, section 4.2; rand_augment.hpp.
//
// What is drawn is a function of (seed, sample, epoch): methods and numbers of workers that are compared meet the same
// images. Evaluations meet the stored ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/rand_augment.hpp"

namespace syncopate {

struct Augmentation {
  std::int64_t crop = 0;      // pixels of the frame, of which each of the (2 crop + 1)^2 crops is as likely
  bool flip = false;          // left and right, every second time
  double rotate_degrees = 0;  // uniform from its negative to it, counter-clockwise, bilinear
  double zoom = 0;            // larger by a factor that is uniform in [1 - zoom, 1 + zoom]
  std::optional<RandAugment> randaugment{};
  double mixup = 0;  // alpha, of the samples of a micro-batch (models/mixup.hpp), of whatever kind; 0: none

  bool warps() const { return rotate_degrees > 0 || zoom > 0; }
  bool changes_images() const { return crop > 0 || flip || warps() || randaugment; }
  bool changes_samples() const { return changes_images() || mixup > 0; }
};

// `inner` must have images of bytes (DatasetSize::has_byte_images).
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation);

}  // namespace syncopate
