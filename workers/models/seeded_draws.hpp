// Random numbers that LibTorch's operators draw: dropout in a module of the user's own. LibTorch has one generator for
// all threads of a process, so that what a thread gets would depend on the others.
//
// While a SeededDraws lives, all that this thread's operators draw comes from a generator of its own. No LibTorch here.
#pragma once

#include <cstdint>
#include <optional>

#include "workers/training/objective.hpp"

namespace syncopate {

class SeededDraws {
 public:
  // Without a seed: does nothing.
  explicit SeededDraws(std::optional<std::uint64_t> seed);
  ~SeededDraws();
  SeededDraws(const SeededDraws&) = delete;
  SeededDraws& operator=(const SeededDraws&) = delete;

  // The numbers from the first one on once more.
  static void repeat();
  // How often operators of this thread have drawn while one lived.
  static std::uint64_t drawn();

 private:
  bool* are_seeded_ = nullptr;  // of this thread; null: it does nothing
};

// The seed for a micro-batch, from the counter-based streams.
std::uint64_t seed_of_draws(std::uint64_t seed, const MicroBatch& micro_batch);

}  // namespace syncopate
