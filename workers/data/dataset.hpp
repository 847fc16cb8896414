// Labelled samples in memory: numbers, normalised on the way to the model, or tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workers/files/data_fault.hpp"  // what loading one throws
#include "workers/training/objective.hpp"

namespace syncopate {

// Shape of one input. A vector of d features is one channel of one row; a sequence is one row, as wide as the longest
// is long, of numbers below `vocabulary`.
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t vocabulary = 0;  // 0: no tokens
  bool has_tokens() const { return vocabulary > 0; }
  std::int64_t features() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// Tokens that are no words.
struct TokenMarks {
  std::int32_t mask = -1;                    // stands for what a masked language model has to find; -1: there is none
  std::vector<std::int32_t> never_masked{};  // such as those at a sequence's ends
  std::int32_t padding = -1;                // stands behind a sequence's end where others are longer; -1: there is none
  bool never_masked_stand_at_ends = false;  // one at each end of every sequence, and no others of them
};

// Of a token that is asked for nothing: what torch.nn.CrossEntropyLoss ignores unless it is told otherwise.
inline constexpr std::int32_t ignored_label = -100;

struct PixelScale;
struct Visits;

// An image in memory: (channels, height, width).
struct StoredImage {
  std::span<const std::uint8_t> pixels;
  std::int64_t label = 0;
};

// What is known of a data set before its contents are read.
struct DatasetSize {
  std::int64_t train = 0;
  std::int64_t test = 0;
  SampleShape shape;
  std::int64_t classes = 0;
  std::int64_t targets = 0;          // numbers that each sample has instead of a class; 0: it has a class
  std::int64_t token_classes = 0;    // of the labels that each token has, instead of one for all; 0: there are none
  TokenMarks marks{};                // of tokens
  bool has_byte_images = false;      // rather than vectors, or images of numbers
  std::int64_t validation = 0;       // no part of `train` (validation.hpp)
  std::int64_t shortest = 0;         // tokens of the shortest sequence; 0: all may be as long as the longest
  std::vector<std::string> notes{};  // what is worth knowing of the files, and is no fault; a sentence each
  std::int64_t samples(Split split) const {
    return split == Split::train ? train : split == Split::test ? test : validation;
  }
};

// Immutable once made, so any number of threads may gather from it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetSize& size() const = 0;

  // Writes the named samples of a split: inputs (n, features) row by row, each feature of mean 0 and
  // deviation 1 over the training set where the data set normalises, and labels (n,) in [0, classes). Tokens are no
  // inputs: of those the labels alone are written, and `inputs` may be null.
  virtual void gather(Split split, std::span<const std::uint32_t> samples, float* inputs,
                      std::int64_t* labels) const = 0;

  // Where size().targets > 0, and labels are all 0: the numbers of the named samples, (n, targets). By default
  // std::logic_error.
  virtual void gather_targets(Split split, std::span<const std::uint32_t> samples, float* targets) const;

  // The tokens of a sample, at least one, without any padding: as many as it really has. They live as long as the data
  // set. None where samples are numbers.
  virtual std::span<const std::int32_t> tokens(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // Where size().token_classes > 0, and the samples' labels are all 0: as many as tokens, in [0, token_classes) or
  // ignored_label.
  virtual std::span<const std::int32_t> token_labels(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // What gather gives of training samples on their way to a gradient: they may be changed at random (augmentation.hpp).
  virtual void gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const;

  // Where has_byte_images: a training image as it is stored, and what pixels are scaled by, (channels,).
  virtual StoredImage stored_image(std::uint32_t sample) const;
  virtual std::span<const PixelScale> pixel_scales() const;
};

}  // namespace syncopate
