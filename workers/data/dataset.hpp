// Data sets of labelled samples. Samples are numbers, which are normalised when they are gathered, or tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/base/random.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// The shape of one input. A vector has one channel and row. A sequence has one row, as wide as the longest sequence.
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t vocabulary = 0;  // tokens are smaller than this; 0: no tokens
  bool has_tokens() const { return vocabulary > 0; }
  std::int64_t features() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// One value for the training set and one for the test set.
template <typename Value>
struct Splits {
  Value train, test;

  const Value& operator[](Split split) const { return split == Split::train ? train : test; }
};

struct TokenMarks {
  std::int32_t mask = -1;                    // replaces tokens that a masked language model must predict; -1: none
  std::vector<std::int32_t> never_masked{};  // such as those at a sequence's ends
  std::int32_t padding = -1;                 // fills shorter sequences at their ends; -1: none
  bool never_masked_stand_at_ends = false;   // every sequence has one of them at each end, and none inside
};

// The label of tokens that are not to be predicted. torch.nn.CrossEntropyLoss ignores it by default.
inline constexpr std::int32_t ignored_label = -100;

// The scale of a channel whose pixels are stored as bytes: the model gets (pixel - mean) x factor.
struct PixelScale {
  float mean = 0;
  float factor = 1;  // 1 / deviation
};

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
  std::int64_t targets = 0;          // numbers per sample if labels are numbers; 0: classes
  std::int64_t token_classes = 0;    // number of classes if tokens have labels; 0: one label per sequence
  TokenMarks marks{};                // special tokens, if samples are tokens
  bool has_byte_images = false;      // samples are images of bytes
  bool is_mapped = false;            // samples are read from memory-mapped files when they are needed
  bool draws_samples = false;        // each visit draws a training sample from all training data
  std::int64_t validation = 0;       // samples held out of the training set; not part of `train`
  std::int64_t shortest = 0;         // tokens of the shortest sequence; 0: unknown, all may be as long as the longest
  std::vector<std::string> notes{};  // remarks on the files that are not faults; one sentence each
  std::int64_t samples(Split split) const {
    return split == Split::train ? train : split == Split::test ? test : validation;
  }
};

// A visit of one sample, on which random draws for it depend.
struct Visit {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

// The samples of a batch, and for each the epoch in which it is visited. Random draws for a sample (image augmentation,
// dropout) depend only on seed, sample and epoch, so they are the same for all methods and workers.
struct Visits {
  std::uint64_t seed = 0;
  std::span<const std::uint32_t> samples;  // (n,)
  std::span<const std::int64_t> epochs;    // (n,)

  std::size_t size() const { return samples.size(); }

  // Returns the i-th sample's stream. Its `worker` has the bits of the sample's number, which may be 2^31 or more.
  RandomStream stream(Purpose purpose, std::size_t i) const {
    return {.seed = seed, .purpose = purpose, .worker = Rank{static_cast<int>(samples[i])}, .step = epochs[i]};
  }
};

// Immutable after construction, so several threads may use it at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetSize& size() const = 0;

  // Writes these samples of a split: inputs (n, features), row by row, and labels (n,) in [0, classes). If the data set
  // normalises, pixels have mean 0 and deviation 1 per channel over the training set. For tokens `inputs` may be null.
  virtual void gather(Split split, std::span<const std::uint32_t> samples, float* inputs,
                      std::int64_t* labels) const = 0;

  // If size().targets > 0, labels are all 0, and gather_targets() writes the samples' numbers, (n, targets). Throws
  // std::logic_error for other data sets.
  virtual void gather_targets(Split /*split*/, std::span<const std::uint32_t> /*samples*/, float* /*targets*/) const {
    throw std::logic_error("samples have classes");
  }

  // Returns the tokens of a sample, at least one, without padding. Empty if samples are numbers. A data set without
  // tokens in memory writes them to `space`. The result is valid as long as the data set exists and `space` is
  // unchanged. If size().draws_samples, the tokens of a training sample depend on the visit.
  virtual std::span<const std::int32_t> tokens(Split /*split*/, std::uint32_t /*sample*/, const Visit& /*visit*/,
                                               std::vector<std::int32_t>& /*space*/) const {
    return {};
  }
  // Returns the number of a sample's tokens, which is the same for all visits.
  virtual std::int64_t length(Split split, std::uint32_t sample) const;

  // If size().token_classes > 0, the samples' labels are all 0, and token_labels() returns one label per token: in [0,
  // token_classes), or ignored_label.
  virtual std::span<const std::int32_t> token_labels(Split /*split*/, std::uint32_t /*sample*/) const { return {}; }

  // Like gather(), for the training samples of a gradient, which may be augmented at random (augmentation.hpp).
  virtual void gather_training(const Visits& visits, float* inputs, std::int64_t* labels) const {
    gather(Split::train, visits.samples, inputs, labels);
  }

  // For data sets with has_byte_images: a training image as it is stored, and the scales of pixels, (channels,).
  virtual StoredImage stored_image(std::uint32_t /*sample*/) const { throw std::logic_error("no images of bytes"); }
  virtual std::span<const PixelScale> pixel_scales() const { return {}; }
};

// The samples of a split, row by row: floats, or bytes that are normalised when they are gathered.
struct SampleRows {
  std::vector<std::int64_t> labels{};   // (n,)
  const float* floats = nullptr;        // (n, features); null: bytes
  const std::uint8_t* bytes = nullptr;  // (n, features)
  const float* targets = nullptr;       // (n, targets) if labels are numbers
  std::shared_ptr<const void> owner{};  // keeps the memory of the pointers
};

// `scales`: (channels,), for bytes; empty: measured over the training samples. A constant channel gets the factor 1.
std::shared_ptr<const Dataset> make_dataset(const DatasetSize& size, SampleRows train, SampleRows test,
                                            std::vector<PixelScale> scales = {});

// Normalises one sample, (channels, height, width), with scales (channels,).
void normalise(std::span<const std::uint8_t> pixels, std::span<const PixelScale> scales, float* out);

// Selects the tokens of a text that a masked language model must predict, and replaces them.
// Source:  Devlin et al. 2019, "BERT", and its code: a share of a text's tokens is selected, at least one and at most
//          `most`. The number is rounded. It is a share of all tokens, even those at the ends, which are never
//          selected. A selected token becomes the mask (80 %), stays (10 %), or becomes a random token of the
//          vocabulary (10 %), which may be a special token or the same token.
// Shapes:  tokens (length,), in the order of the text.
// Differs: no whole-word masking; no second draw if a text has fewer words than are to be selected.
struct MaskingOptions {
  double share = 0.15;     // share of a text's tokens that is selected
  std::int64_t most = 20;  // selected tokens per text
  // Static masking: the number of copies of each text. Each copy is masked once, and each epoch uses the next copy. 0:
  // dynamic masking, which masks each text again in every epoch.
  std::int64_t copies = 0;
};

struct MaskedText {
  std::vector<std::int32_t> tokens;    // as the model sees them
  std::vector<std::int32_t> places{};  // indices of the tokens to predict, ascending
};

// `size` is that of the data set, which must have a mask token.
MaskedText mask(std::span<const std::int32_t> tokens, const DatasetSize& size, const MaskingOptions& options,
                const RandomStream& stream);

// Returns the random stream for a sample's masks in an epoch. Test and validation samples are masked in the same way in
// all epochs. They have separate streams per split, because equal sample numbers are different texts. The training loss
// uses the masks of epoch 0.
RandomStream masking_stream(std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                            const MaskingOptions& options);

}  // namespace syncopate
