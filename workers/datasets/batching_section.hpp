// The keys of [training] that say how sequences make a micro-batch: batching, token_budget.
#pragma once

#include <cstdint>
#include <string_view>

#include "workers/datasets/registry.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct BatchingOptions {
  Batching kind = Batching::count;
  std::int64_t token_budget = 0;  // of packed ones

  bool is_formed() const { return kind == Batching::packed || kind == Batching::bucketed; }
  bool pads() const { return kind == Batching::padded || kind == Batching::bucketed; }
};

BatchingOptions read_batching(Settings& training);

// A fault, and false, where the data set has no sequences and the batching is of sequences.
bool suits_batching(const DatasetPlan& data, const BatchingOptions& batching, std::string_view dataset,
                    Settings& training);

}  // namespace syncopate
