// What texts are asked for, and so what the outputs of a network mean.
#pragma once

#include <cstdint>

#include "workers/datasets/masking.hpp"
#include "workers/datasets/sampled_lengths.hpp"

namespace syncopate {

struct TextTask {
  enum class Kind {
    classification,  // a text's class
    masked_lm,       // the tokens that are hidden in it
    causal_lm,       // each token but the first, from those before it
  };
  Kind kind = Kind::classification;
  MaskingOptions masking{};  // of masked_lm
  bool own_labels = false;   // of masked_lm: nothing is hidden, and the data set's labels of tokens are the answers
  std::int64_t longest = 0;  // tokens that a text is cut to; 0: none is cut
  // Of what sees texts of unlike length together:
  bool pads = true;          // whether it may; else those of one length alone stand together
  std::int32_t padding = 0;  // the token behind the shorter ones' ends
};

// Of a text.
inline ComputedTokens computed_by(const TextTask& task) {
  return {.longest = task.longest, .last_is_answer = task.kind == TextTask::Kind::causal_lm};
}

}  // namespace syncopate
