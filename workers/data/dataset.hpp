// Labelled samples in memory: numbers, which are normalised when gathered, or tokens.
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

// Shape of one input. A vector is one channel with one row; a sequence is one row, as wide as the longest sequence.
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t vocabulary = 0;  // tokens are below this; 0: no tokens
  bool has_tokens() const { return vocabulary > 0; }
  std::int64_t features() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// Tokens that are not words.
struct TokenMarks {
  std::int32_t mask = -1;                    // hides what a masked language model has to predict; -1: none
  std::vector<std::int32_t> never_masked{};  // such as those at a sequence's ends
  std::int32_t padding = -1;                 // fills up shorter sequences at their ends; -1: none
  bool never_masked_stand_at_ends = false;   // one at each end of every sequence, and none inside
};

// The label of a token without a question: torch.nn.CrossEntropyLoss ignores it by default.
inline constexpr std::int32_t ignored_label = -100;

struct PixelScale;
struct Visits;

// An image in memory: (channels, height, width).
struct StoredImage {
  std::span<const std::uint8_t> pixels;
  std::int64_t label = 0;
};

// A data set's properties that are known before its contents are read.
struct DatasetSize {
  std::int64_t train = 0;
  std::int64_t test = 0;
  SampleShape shape;
  std::int64_t classes = 0;
  std::int64_t targets = 0;          // numbers per sample instead of a class; 0: a class
  std::int64_t token_classes = 0;    // classes of the tokens' labels, if each token has one; 0: one label per sequence
  TokenMarks marks{};                // for tokens
  bool has_byte_images = false;      // instead of vectors or images of numbers
  std::int64_t validation = 0;       // not part of `train` (datasets.hpp)
  std::int64_t shortest = 0;         // tokens of the shortest sequence; 0: all may be as long as the longest
  std::vector<std::string> notes{};  // information about the files that is not a fault; one sentence each
  std::int64_t samples(Split split) const {
    return split == Split::train ? train : split == Split::test ? test : validation;
  }
};

// Immutable after construction, so any number of threads may gather from it.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetSize& size() const = 0;

  // Writes these samples of a split: inputs (n, features) row by row, and labels (n,) in [0, classes). If the data set
  // normalises, each feature has mean 0 and deviation 1 over the training set. For tokens `inputs` may be null.
  virtual void gather(Split split, std::span<const std::uint32_t> samples, float* inputs,
                      std::int64_t* labels) const = 0;

  // For size().targets > 0, where labels are all 0: the numbers of these samples, (n, targets). Otherwise throws
  // std::logic_error.
  virtual void gather_targets(Split /*split*/, std::span<const std::uint32_t> /*samples*/, float* /*targets*/) const {
    throw std::logic_error("samples have classes");
  }

  // The tokens of a sample, at least one, without padding; valid as long as the data set. Empty for numbers.
  virtual std::span<const std::int32_t> tokens(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // For size().token_classes > 0, where samples' labels are all 0: one label per token, in [0, token_classes) or
  // ignored_label.
  virtual std::span<const std::int32_t> token_labels(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // Like gather, for training samples of a gradient, which may be changed at random (augmentation.hpp).
  virtual void gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const;

  // For has_byte_images: a training image as stored, and the scales of pixels, (channels,).
  virtual StoredImage stored_image(std::uint32_t /*sample*/) const { throw std::logic_error("no images of bytes"); }
  virtual std::span<const PixelScale> pixel_scales() const;
};

// Pixels are stored as bytes; the model gets (pixel - mean) x factor, channel by channel.
struct PixelScale {
  float mean = 0;
  float factor = 1;  // 1 / deviation
};

// Measured over all `pixels` (n, channels, height, width); a channel with a single value has a factor of 1. Returns
// (channels,).
std::vector<PixelScale> measured_scales(std::span<const std::uint8_t> pixels, const SampleShape& shape);

// One sample, (channels, height, width), by scales (channels,).
void normalise(std::span<const std::uint8_t> pixels, std::span<const PixelScale> scales, float* out);

// The samples of a batch, and the epoch of each visit. Draws for a sample (changes of its image, dropped activations)
// depend only on seed, sample and epoch, so all methods and workers get the same.
struct Visits {
  std::uint64_t seed = 0;
  std::span<const std::uint32_t> samples;  // (n,)
  std::span<const std::int64_t> epochs;    // (n,)

  std::size_t size() const { return samples.size(); }

  // The stream for the i-th sample. Its worker has the bits of the sample's number, which may exceed 2^31.
  RandomStream stream(Purpose purpose, std::size_t i) const {
    return {.seed = seed, .purpose = purpose, .worker = Rank{static_cast<int>(samples[i])}, .step = epochs[i]};
  }
};

// Which tokens of a text a masked language model has to predict, and what it sees in their place.
// Source:  Devlin et al. 2019, "BERT", and its code: a share of a text's tokens, those at its ends included, is
//          selected: rounded, at least one and at most `most`. Of these 80 % are shown as the mask, 10 % unchanged, and
//          10 % as a random token of the vocabulary, which may be a non-word, or the same token.
// Shapes:  tokens (length,), in the order of the text.
// Differs: there is no whole-word masking, and no second draw if a text has fewer words than requested.
struct MaskingOptions {
  double share = 0.15;     // share of a text's tokens
  std::int64_t most = 20;  // per text
  // Static masking: this many copies of each text, each masked once, alternate from epoch to epoch; 0: dynamic masking.
  std::int64_t copies = 0;
};

struct MaskedText {
  std::vector<std::int32_t> tokens;    // as the model sees them
  std::vector<std::int32_t> places{};  // indices of the tokens to predict, ascending
};

// `size` is the data set's; it must have a mask.
MaskedText mask(std::span<const std::int32_t> tokens, const DatasetSize& size, const MaskingOptions& options,
                const RandomStream& stream);

// The stream for a sample's visit in an epoch. A test or validation sample has one visit, on a stream of its split,
// since the training sample with its number is another text. The training loss uses each text's first visit.
RandomStream masking_stream(std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                            const MaskingOptions& options);

}  // namespace syncopate
