// Labelled samples in memory: numbers, normalised on the way to the model, or tokens.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/base/random.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Shape of one input. A vector is one channel of one row; a sequence one row of numbers, as wide as the longest one.
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t vocabulary = 0;  // tokens are below it; 0: no tokens
  bool has_tokens() const { return vocabulary > 0; }
  std::int64_t features() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// Tokens that are no words.
struct TokenMarks {
  std::int32_t mask = -1;                    // hides what a masked language model has to find; -1: there is none
  std::vector<std::int32_t> never_masked{};  // such as those at a sequence's ends
  std::int32_t padding = -1;                // stands behind a sequence's end where others are longer; -1: there is none
  bool never_masked_stand_at_ends = false;  // one at each end of every sequence, and no others of them
};

// The label of a token that is asked for nothing: torch.nn.CrossEntropyLoss ignores it by default.
inline constexpr std::int32_t ignored_label = -100;

struct PixelScale;
struct Visits;

// An image in memory: (channels, height, width).
struct StoredImage {
  std::span<const std::uint8_t> pixels;
  std::int64_t label = 0;
};

// A data set as it is known before its contents are read.
struct DatasetSize {
  std::int64_t train = 0;
  std::int64_t test = 0;
  SampleShape shape;
  std::int64_t classes = 0;
  std::int64_t targets = 0;          // numbers that each sample has instead of a class; 0: it has a class
  std::int64_t token_classes = 0;    // of the labels that each token has, instead of one for all; 0: there are none
  TokenMarks marks{};                // of tokens
  bool has_byte_images = false;      // rather than vectors, or images of numbers
  std::int64_t validation = 0;       // no part of `train` (datasets.hpp)
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

  // Writes the named samples of a split: inputs (n, features) row by row, each feature of mean 0 and deviation 1 over
  // the training set where the data set normalises, and labels (n,) in [0, classes). For tokens `inputs` may be null.
  virtual void gather(Split split, std::span<const std::uint32_t> samples, float* inputs,
                      std::int64_t* labels) const = 0;

  // With size().targets > 0, where labels are all 0: the numbers of the named samples, (n, targets). Else
  // std::logic_error.
  virtual void gather_targets(Split /*split*/, std::span<const std::uint32_t> /*samples*/, float* /*targets*/) const {
    throw std::logic_error("samples have classes");
  }

  // The tokens of a sample, at least one, without padding; they live as long as the data set. None for numbers.
  virtual std::span<const std::int32_t> tokens(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // With size().token_classes > 0, and samples' labels all 0: one per token, in [0, token_classes) or ignored_label.
  virtual std::span<const std::int32_t> token_labels(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // As gather, for training samples on their way to a gradient, which may be changed at random (augmentation.hpp).
  virtual void gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const;

  // With has_byte_images: a training image as it is stored, and the scales of pixels, (channels,).
  virtual StoredImage stored_image(std::uint32_t /*sample*/) const { throw std::logic_error("no images of bytes"); }
  virtual std::span<const PixelScale> pixel_scales() const;
};

// Pixels are bytes in memory, and on the way to the model (pixel - mean) x factor, channel by channel.
struct PixelScale {
  float mean = 0;
  float factor = 1;  // 1 / deviation
};

// Over all `pixels` (n, channels, height, width); a channel of one value has a factor of 1. (channels,)
std::vector<PixelScale> measured_scales(std::span<const std::uint8_t> pixels, const SampleShape& shape);

// One sample, (channels, height, width), by scales (channels,).
void normalise(std::span<const std::uint8_t> pixels, std::span<const PixelScale> scales, float* out);

// Which samples a batch holds, and in which epoch each of them is met. Draws for a sample (changes of its image,
// dropped activations) depend on seed, sample and epoch alone, so that all methods and workers meet the same.
struct Visits {
  std::uint64_t seed = 0;
  std::span<const std::uint32_t> samples;  // (n,)
  std::span<const std::int64_t> epochs;    // (n,)

  std::size_t size() const { return samples.size(); }

  // Draws for the i-th sample. The stream's worker is the bits of the sample's number, which may be above 2^31.
  RandomStream stream(Purpose purpose, std::size_t i) const {
    return {.seed = seed, .purpose = purpose, .worker = Rank{static_cast<int>(samples[i])}, .step = epochs[i]};
  }
};

// Which tokens of a text a masked language model has to find, and what it is shown in their place.
// Source:  Devlin et al. 2019, "BERT", and its code: of a text's tokens, those at its ends included, a share, rounded,
//          at least one and at most `most`; of these 80 % are shown as the mask, 10 % as they are, and 10 % as any
//          token of the vocabulary, which may be no word, or the same one.
// Shapes:  tokens (length,), as the text has them.
// Differs: nothing is drawn for whole words, or twice where a text has fewer words than it is asked for.
struct MaskingOptions {
  double share = 0.15;     // of a text's tokens
  std::int64_t most = 20;  // per text
  // Static masking: so many copies of each text, masked once each, take turns epoch by epoch; 0: dynamic.
  std::int64_t copies = 0;
};

struct MaskedText {
  std::vector<std::int32_t> tokens;    // as shown
  std::vector<std::int32_t> places{};  // of those to be found, ascending
};

// `shape` and `marks` are the data set's; there must be a mask.
MaskedText mask(std::span<const std::int32_t> tokens, const DatasetSize& size, const MaskingOptions& options,
                const RandomStream& stream);

// The stream for a sample's visit in an epoch. A test or validation sample has one visit, on a stream of its split,
// since the training sample of its number is another text. The training loss is that of each text's first visit.
RandomStream masking_stream(std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                            const MaskingOptions& options);

}  // namespace syncopate
