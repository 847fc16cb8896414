// Which tokens of a text a masked language model has to find, and what it is shown in their place.
// Source:  Devlin et al. 2019, "BERT", and its code: of a text's tokens, those at its ends included, a share, rounded,
//          at least one and at most `most`; of these 80 % are shown as the mask, 10 % as they are, and 10 % as any
//          token of the vocabulary, which may be no word, or the same one.
// Shapes:  tokens (length,), as the text has them.
// Differs: nothing is drawn for whole words, or twice where a text has fewer words than it is asked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/random/random.hpp"

namespace syncopate {

struct MaskingOptions {
  double share = 0.15;     // of a text's tokens
  std::int64_t most = 20;  // per text
  std::int64_t copies =
      0;  // static masking: of each text as many, masked once each, in turn epoch by epoch; 0: dynamic
};

struct MaskedText {
  std::vector<std::int32_t> tokens;  // as shown
  std::vector<std::int32_t> places;  // of those to be found, ascending
};

// `shape` and `marks` are the data set's; there must be a mask.
MaskedText mask(std::span<const std::int32_t> tokens, const DatasetSize& size, const MaskingOptions& options,
                const RandomStream& stream);

// The stream for a sample's visit in an epoch. A test or validation sample has one visit for all times, on a stream of
// its split's own: what is drawn for the training sample of that number is another text's. The training loss is that of
// each text's first visit.
RandomStream masking_stream(std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                            const MaskingOptions& options);

}  // namespace syncopate
