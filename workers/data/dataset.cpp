#include "workers/datasets/dataset.hpp"

#include <stdexcept>

#include "workers/datasets/pixel_scale.hpp"
#include "workers/datasets/visits.hpp"

namespace syncopate {

void Dataset::gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const {
  gather(Split::train, visits.samples, inputs, labels);
}

void Dataset::gather_targets(Split, std::span<const std::uint32_t>, float*) const {
  throw std::logic_error("samples have classes");
}

StoredImage Dataset::stored_image(std::uint32_t) const { throw std::logic_error("no images of bytes"); }
std::span<const PixelScale> Dataset::pixel_scales() const { return {}; }

}  // namespace syncopate
