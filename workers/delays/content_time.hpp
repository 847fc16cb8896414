// Base times that follow what is in a micro-batch: the natural variance of computation.
// Source:  Giladi et al. 2023 motivate DropCompute by sequences of unequal lengths; a transformer's layer costs
//          24 s h^2 + 4 s^2 h operations for a sequence of s tokens at width h.
// Units:   seconds, tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "workers/datasets/batch_lengths.hpp"
#include "workers/delays/delay_process.hpp"

namespace syncopate {

// What a micro-batch of sequences of lengths l_1 ... l_B takes, L being the longest:
//   base_s + per_token_s (l_1 + ... + l_B) + per_padded_token_s B L + per_squared_length_s (l_1^2 + ... + l_B^2)
// Where shorter sequences are padded to the longest, squares are those of L: B L^2.
struct ContentCost {
  double base_s = 0;  // each >= 0, and one of them above
  double per_token_s = 0;
  double per_padded_token_s = 0;
  double per_squared_length_s = 0;
  bool pads = false;
};

double seconds_of(const ContentCost& cost, std::span<const std::int32_t> lengths);

// As the base of a ComputeTime. Means and variances are those of the micro-batches, and of the steps, of the first
// epoch (of the first 200,000 micro-batches of a longer one): sums over what is really there, without a formula. The
// shortest is a bound: as few samples as there may be, all as short as the shortest.
std::shared_ptr<const DelayProcess> content_time(const ContentCost& cost, std::shared_ptr<const BatchLengths> lengths);

}  // namespace syncopate
