// Counter-based random numbers (Philox 4x32-10, Random123). Each value is a pure function of (seed, purpose, stream,
// worker, step, index). So every method of an experiment gets the same delays and the same data, in any order of
// execution, on any cluster, with any number of threads.
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

// The use of a number. Values are part of the reproducibility contract: append, never renumber.
enum class Purpose : std::uint8_t {
  delay = 1,               // duration of a micro-batch
  worker_factor = 2,       // persistent speed of a worker
  data_order = 3,          // permutation of an epoch
  initial_parameters = 4,  // starting point of the training
  gradient_noise = 5,      // noise of the quadratic model
  synthetic_data = 6,      // generated data sets
  network = 7,             // jitter
  algorithm = 8,           // a method's own random choices
  delay_of_run = 9,        // a delay drawn once per worker
  delay_burst = 10,        // when delays come in bursts
  outage = 11,             // when workers are down
  data_partition = 12,     // which samples each worker gets
  trace_block = 13,        // which part of a recording a worker gets
  augmentation = 14,       // how a training image is changed
  dropout = 15,            // which activations of a sample are zero in training
  mixup = 16,              // which samples of a micro-batch are mixed, and how much
  validation = 17,         // which training samples are held out for validation
  module_draws = 20,       // draws of a user's own module in a forward pass
  masking = 21,            // which tokens of texts are hidden
  measurement = 25,        // directions in which a model is measured
  compression = 26,        // rounding and selection by compressors
};

// One stream of uniform numbers: all coordinates except the index.
struct RandomStream {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::delay;
  std::uint8_t stream = 0;  // distinguishes users of one purpose, such as the delays of a list
  Rank worker{};
  Step step{};

  // The 128 random bits of block `block` of the stream.
  std::array<std::uint32_t, 4> block(std::uint32_t block) const;

  // out[i] = uniform number `first + i` of the stream, in the open interval (0, 1): (k + 1/2) 2^-52 for a 52-bit
  // integer k. A double holds this exactly (with one bit more, k + 1/2 would round up to 1), so quantile functions
  // never get 0 or 1. Numbers 2 b and 2 b + 1 come from block b.
  void fill_uniform(std::uint32_t first, std::span<double> out) const;

  double uniform(std::uint32_t index) const;
};

// 0 to size - 1 in a random order, all orders equally likely (Fisher and Yates). Uses `size` numbers of the stream,
// from `first` on. These have 52 bits, so the bias of an element is below size / 2^52.
std::vector<std::uint32_t> permutation(const RandomStream& stream, std::size_t size, std::uint32_t first = 0);

// The streams of consecutive workers at one step, or of one worker at consecutive steps. Drawing a dozen numbers from
// all of them at once is a third cheaper than one by one.
struct RandomRows {
  enum class Along { workers, steps };

  RandomStream first{};
  Along along = Along::workers;
  std::size_t count = 1;

  RandomStream operator[](std::size_t row) const;
  // Rows [begin, begin + rows).
  RandomRows part(std::size_t begin, std::size_t rows) const { return {(*this)[begin], along, rows}; }

  // Row by row, out.size() / count numbers of each row from `first_number` on: the same numbers as the row's own
  // fill_uniform.
  void fill_uniform(std::uint32_t first_number, std::span<double> out) const;
};

// `chosen` different numbers below `count`, all sets equally likely, from `chosen` numbers of the stream.
std::vector<int> draw_set(int count, int chosen, const RandomStream& stream, std::uint32_t first = 0);

// Whether `holds_for` is true for all sets of `chosen` numbers below `count`. If there are more than `most_sets` sets,
// it tests that many random ones.
bool holds_for_sets(int count, int chosen, int most_sets, const RandomStream& stream,
                    const std::function<bool(std::span<const int>)>& holds_for);

// out[i] = standard normal number `first + i` of the stream, by the inverse of the normal distribution function. Each
// takes one uniform number, so number i does not depend on earlier ones.
void fill_standard_normal(const RandomStream& stream, std::uint32_t first, std::span<double> out);

// The vector instructions that draw random numbers and delays. All give the same bits.
enum class InstructionSet { scalar, avx2, avx512 };

InstructionSet widest_instruction_set();  // the widest this processor has

// The set in use. Tests set it to less than the widest.
extern InstructionSet instruction_set;

}  // namespace syncopate
