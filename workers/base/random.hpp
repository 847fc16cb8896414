// Counter-based random numbers (Philox 4x32-10, Random123). Each value is a pure function of (seed, purpose, stream,
// worker, step, index). Therefore every method of an experiment gets the same delays and the same data, whatever the
// order of execution, the cluster and the number of threads.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

// The use of a random number. Append new values and never renumber, because results depend on the numbers.
enum class Purpose : std::uint8_t {
  delay = 1,               // duration of a micro-batch
  worker_factor = 2,       // persistent speed of a worker
  data_order = 3,          // order of the samples in an epoch
  initial_parameters = 4,  // initial weights of a model
  gradient_noise = 5,      // noise of the quadratic model
  synthetic_data = 6,      // generated data sets
  network = 7,             // jitter of the network's times
  algorithm = 8,           // a method's own random choices
  delay_of_run = 9,        // a delay drawn once per worker
  delay_burst = 10,        // start times of bursts of delays
  outage = 11,             // start times and lengths of outages
  data_partition = 12,     // which samples each worker gets
  trace_block = 13,        // which part of a recorded trace a worker replays
  augmentation = 14,       // how a training image is augmented
  dropout = 15,            // which activations of a sample are zeroed in training
  mixup = 16,              // which samples of a micro-batch are mixed, and their weights
  validation = 17,         // which training samples are held out for validation
  module_draws = 20,       // random draws of a user's PyTorch module in a forward pass
  masking = 21,            // which tokens of texts are masked
  label_noise = 22,        // which training labels are replaced, and by which class
  measurement = 25,        // random directions for measurements of a model
  compression = 26,        // rounding and selection by compressors
  optimizer = 27,          // an optimizer's own random start
};

// A stream of uniform random numbers. Its fields are all coordinates of a number except the index.
struct RandomStream {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::delay;
  std::uint8_t stream = 0;  // distinguishes several uses of one purpose, such as the delays in a list
  Rank worker{};
  Step step{};

  // The 128 random bits of block `block` of the stream.
  std::array<std::uint32_t, 4> block(std::uint32_t block) const;

  // Sets out[i] to uniform number `first + i` of the stream, in the open interval (0, 1). It is (k + 1/2) 2^-52 for a
  // 52-bit integer k. A double represents this exactly (with a 53-bit k, it could round up to 1), so quantile functions
  // never get 0 or 1. Numbers 2 b and 2 b + 1 come from block b.
  void fill_uniform(std::uint32_t first, std::span<double> out) const;

  double uniform(std::uint32_t index) const;
};

// Returns 0 to size - 1 in a random order (Fisher-Yates shuffle; all orders equally likely). Uses `size` numbers of the
// stream, from `first` on. They have 52 bits, so the relative error of a probability is below size / 2^52.
std::vector<std::uint32_t> permutation(const RandomStream& stream, std::size_t size, std::uint32_t first = 0);

// The streams ("rows") of consecutive workers at one step, or of one worker at consecutive steps. Drawing a dozen
// numbers from each of them in one call takes a third less time than one call per stream.
struct RandomRows {
  enum class Along { workers, steps };

  RandomStream first{};
  Along along = Along::workers;
  std::size_t count = 1;

  RandomStream operator[](std::size_t row) const;
  // Rows [begin, begin + rows).
  RandomRows part(std::size_t begin, std::size_t rows) const { return {(*this)[begin], along, rows}; }

  // Fills `out` row by row with out.size() / count numbers per row, from `first_number` on, the same numbers as from
  // each row's own fill_uniform.
  void fill_uniform(std::uint32_t first_number, std::span<double> out) const;
};

// Returns `chosen` different numbers below `count`, all sets equally likely. Uses `chosen` numbers of the stream, from
// `first` on.
std::vector<int> draw_set(int count, int chosen, const RandomStream& stream, std::uint32_t first = 0);

// Whether `holds_for` is true for all sets of `chosen` numbers from 0 to count - 1. If there are more than `most_sets`
// sets, tests `most_sets` random ones.
bool holds_for_sets(int count, int chosen, int most_sets, const RandomStream& stream,
                    const std::function<bool(std::span<const int>)>& holds_for);

// Sets out[i] to standard normal number `first + i` of the stream, computed with the inverse of the normal distribution
// function. Each one uses one uniform number, so number i does not depend on earlier ones.
void fill_standard_normal(const RandomStream& stream, std::uint32_t first, std::span<double> out);

// The vector instructions with which random numbers and delays are drawn. All give the same bits.
enum class InstructionSet { scalar, avx2, avx512 };

// The instruction set in use: the widest of this processor. Tests also select narrower ones.
extern InstructionSet instruction_set;

}  // namespace syncopate
