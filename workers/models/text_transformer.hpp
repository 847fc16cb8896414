// The transformer of texts: words and places, embedded and added, blocks of attention and of a perceptron with exact
// GELU, and what the task asks for.
//   classification: of the first token a dense layer and tanh, or the mean over the tokens; then a dense layer.
//   masked-lm:      of each token that is hidden a dense layer, GELU and a normalisation; words by the embedding's own
//                   weights, and a bias.
//   causal-lm:      attention sees no later tokens; words by the embedding's own weights.
// Post-norm normalises what is embedded, and each sum; pre-norm what enters each branch, and what leaves the last
// block. Weights are drawn from the normal law of deviation 0.02, biases are zero.
// Source:  Devlin et al. 2019, "BERT" (post-norm; the first two tasks); Radford et al. 2019, "GPT-2" (pre-norm; the
//          last one).
// Dropout takes its share of what is embedded, of what each branch gives, and of what a text's class is read from.
// Differs: no segments, for a sequence is one text; normalisations add 1e-5 to variances, BERT's code 1e-12; dropout
//          leaves attention's weights alone, of which BERT and GPT-2 drop the same share.
#pragma once

#include <cstdint>

#include "workers/models/model.hpp"
#include "workers/models/network.hpp"
#include "workers/models/text_task.hpp"

namespace syncopate {

struct TextTransformerOptions {
  enum class Norm { before, after };  // the branches
  enum class Pooling { first, mean };

  TextTask task{};
  std::int64_t width = 128;  // of a token; a multiple of the heads
  std::int64_t depth = 2;    // blocks
  std::int64_t heads = 4;
  std::int64_t mlp_width = 512;
  std::int64_t positions = 128;  // the longest sequence
  Norm norm = Norm::after;
  Pooling pooling = Pooling::first;
  double dropout = 0;
};

Network text_transformer_network(const SampleShape& input, std::int64_t classes, const TextTransformerOptions& options);

// The table [models.text-transformer].
Model read_text_transformer(Settings& table);

}  // namespace syncopate
