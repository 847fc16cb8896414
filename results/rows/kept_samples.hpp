// What dropping has done to the data: how many samples of each class, and of each length, went into the model, and how
// many would have without dropping.
#pragma once

#include <cstdint>
#include <vector>

namespace syncopate {

struct KeptSamples {
  struct Kinds {
    std::vector<std::int64_t> kept;
    // In all workers' micro-batches of the steps that the run has made; of methods that take the data in turn
    // (Traits::takes_data_in_turn) in each worker's first ones, as many as were kept or dropped. Empty where the
    // accounts are of others.
    std::vector<std::int64_t> offered;
    bool operator==(const Kinds&) const = default;
  };
  Kinds by_class;
  Kinds by_length;                    // by bin; empty where samples have no length
  std::vector<std::int32_t> longest;  // [bin]
  // [bin]: of the last model, the mean loss of the bin's test samples, and the share of their answers that are right;
  // not a number where it has none; empty: no model.
  std::vector<double> test_loss{};
  std::vector<double> test_accuracy{};
  bool operator==(const KeptSamples&) const = default;
};

}  // namespace syncopate
