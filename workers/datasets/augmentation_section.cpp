#include "workers/datasets/augmentation_section.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syncopate {
namespace {

constexpr double least_mixup = 1e-3;  // below it, shares are 0 or 1
constexpr Range shares{.low = 0, .high = 1, .high_open = true};

std::optional<RandAugment> read_randaugment(Settings& augmentation) {
  using Form = RandAugment::Form;
  Settings table = augmentation.section({"randaugment", "Operations drawn for each image, one after another."});
  const auto form = table.choice<std::optional<Form>>(
      {"form", "None; 14 operations of a given strength; or 13 of random ones up to it, as QSR's."},
      {{"none", std::nullopt}, {"torchvision", Form::torchvision}, {"composer", Form::composer}}, std::nullopt);
  if (!form) return std::nullopt;
  RandAugment law{.form = *form};
  law.operations = static_cast<int>(table.integer({"operations", "How many, drawn with replacement."}, 1, 64, 2));
  if (law.form == Form::torchvision)
    law.strength = static_cast<double>(table.integer(
        {"strength", "How strong each operation is, in thirtieths of the strongest that it can be."}, 0, 30, 9));
  else
    law.strength = table.number(
        {"strength", "Up to how strong: each operation draws from 0.1 to this, in tenths of its strongest."},
        {.low = 0.1, .high = 10}, 10.0);
  return law;
}

// The first key, in their order, by which images are changed.
const char* key_that_changes_images(const Augmentation& augmentation) {
  if (augmentation.crop > 0) return "crop";
  if (augmentation.flip) return "flip";
  if (augmentation.rotate_degrees > 0) return "rotate_degrees";
  return augmentation.zoom > 0 ? "zoom" : "randaugment";
}

}  // namespace

Augmentation read_augmentation(Settings& training) {
  Settings table = training.section(
      {"augmentation", "How training samples are changed each time they are met, by seed, sample and epoch."});
  Augmentation augmentation;
  augmentation.crop =
      table.integer({"crop", "Width of a black frame around the image, of which it is a crop.", "pixels"}, 0, 1 << 16,
                    augmentation.crop);
  augmentation.flip = table.flag({"flip", "Whether every second image is flipped, left and right."}, augmentation.flip);
  augmentation.rotate_degrees = table.number({"rotate_degrees", "Images are turned by up to so much.", "degrees"},
                                             Range::between(0, 180), augmentation.rotate_degrees);
  augmentation.zoom =
      table.number({"zoom", "Images become larger or smaller by up to this share."}, shares, augmentation.zoom);
  augmentation.randaugment = read_randaugment(table);
  augmentation.mixup = table.number(
      {"mixup", "Samples of a micro-batch are mixed in pairs, by shares from Beta(mixup, mixup); 0: they are not."},
      {.low = 0, .high = 1e3}, augmentation.mixup);
  if (augmentation.mixup > 0 && augmentation.mixup < least_mixup)
    table.fault("mixup", fmt::format("must be 0 or at least {}", least_mixup));
  return augmentation;
}

void check_augmentation(const Augmentation& augmentation, const DatasetSize& size, std::string_view dataset,
                        Settings& training) {
  const SampleShape& shape = size.shape;
  if (augmentation.mixup > 0 && shape.has_tokens())
    training.section("augmentation")
        .fault("mixup", fmt::format("must be left out: tokens of {} are not mixed", dataset));
  if (!augmentation.changes_images()) return;
  Settings table = training.section("augmentation");
  if (!size.has_byte_images)
    return table.fault(key_that_changes_images(augmentation),
                       fmt::format("needs images of bytes; {} has {}", dataset,
                                   shape.has_tokens()                         ? "texts"
                                   : shape.channels == 1 && shape.height == 1 ? "vectors"
                                                                              : "images of floats"));
  if (augmentation.crop >= std::min(shape.height, shape.width))
    table.fault("crop", fmt::format("must be less than the images' {} x {}", shape.height, shape.width));
  if (augmentation.randaugment && shape.channels != 1 && shape.channels != 3)
    table.section("randaugment")
        .fault("form", fmt::format("must be \"none\": it is of images of 1 or 3 channels, not of {}", shape.channels));
}

}  // namespace syncopate
