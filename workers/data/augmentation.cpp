#include "workers/datasets/augmentation.hpp"

#include <cassert>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "workers/datasets/image_crop.hpp"
#include "workers/datasets/pixel_scale.hpp"
#include "workers/datasets/visits.hpp"

namespace syncopate {
namespace {

// Places of the numbers in a sample's stream: each change has its own, whatever else is on. Those of RandAugment
// follow.
enum Place : std::size_t { place_of_row, place_of_column, place_of_flip, place_of_angle, place_of_zoom, places = 8 };

class AugmentedDataset : public Dataset {
 public:
  AugmentedDataset(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation)
      : inner_(std::move(inner)), augmentation_(augmentation) {
    assert(inner_->size().has_byte_images);
  }

  const DatasetSize& size() const override { return inner_->size(); }
  StoredImage stored_image(std::uint32_t sample) const override { return inner_->stored_image(sample); }
  std::span<const PixelScale> pixel_scales() const override { return inner_->pixel_scales(); }
  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    inner_->gather(split, samples, inputs, labels);
  }
  void gather_targets(Split split, std::span<const std::uint32_t> samples, float* targets) const override {
    inner_->gather_targets(split, samples, targets);
  }

  void gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const override {
    const auto features = static_cast<std::size_t>(size().shape.features());
    const auto scales = pixel_scales();
    thread_local std::vector<std::uint8_t> pixels;
    thread_local std::vector<double> draws;
    pixels.resize(features);
    draws.resize(places + draws_of_operation * static_cast<std::size_t>(operations()));
    for (std::size_t i = 0; i < visits.size(); ++i) {
      const StoredImage image = stored_image(visits.samples[i]);
      visits.stream(Purpose::augmentation, i).fill_uniform(0, draws);
      change(image, draws, pixels);
      normalise(pixels, scales, inputs + i * features);
      labels[i] = image.label;
    }
  }

 private:
  int operations() const { return augmentation_.randaugment ? augmentation_.randaugment->operations : 0; }

  void change(const StoredImage& stored, std::span<const double> draws, std::span<std::uint8_t> pixels) const {
    const ByteImage image{.pixels = pixels, .shape = size().shape};
    crop_and_flip(stored.pixels, image.shape, crop_of(draws), pixels);
    if (augmentation_.warps()) {
      const auto symmetric = [&](Place place) { return 2 * draws[place] - 1; };
      const double degrees = augmentation_.rotate_degrees * symmetric(place_of_angle);
      const double factor = 1 + augmentation_.zoom * symmetric(place_of_zoom);
      warp(image, Warp::rotation(degrees, image.shape, factor), Resampling::bilinear);
    }
    for (int i = 0; i < operations(); ++i) {
      const RandAugment& law = *augmentation_.randaugment;
      const auto own = draws.subspan(places + draws_of_operation * static_cast<std::size_t>(i));
      const auto [operation, amount] = drawn_operation(law, image.shape, own.first<draws_of_operation>());
      apply(operation, amount, law.resampling(), image);
    }
  }

  CropAndFlip crop_of(std::span<const double> draws) const {
    const auto crops = static_cast<double>(2 * augmentation_.crop + 1);
    const auto shift = [&](Place place) {
      return static_cast<std::int64_t>(draws[place] * crops) - augmentation_.crop;
    };
    return {.down = shift(place_of_row),
            .right = shift(place_of_column),
            .flip = augmentation_.flip && draws[place_of_flip] < 0.5};
  }

  std::shared_ptr<const Dataset> inner_;
  Augmentation augmentation_;
};

}  // namespace

std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> inner, const Augmentation& augmentation) {
  return std::make_shared<AugmentedDataset>(std::move(inner), augmentation);
}

}  // namespace syncopate
