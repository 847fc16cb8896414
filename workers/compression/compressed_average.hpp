// One worker's part in compressed averages of models: its residual, and its packets. What is compressed is the model's
// difference to one that all share, never the model itself, whose values differ in size by orders of magnitude; all
// make the same of the packets: that model + the mean of what was sent.
// Source:  Basu et al. 2019, "Qsparse-local-SGD": residual + difference is what a worker sends of, and what it does not
//          send is its next residual.
// Differs: a worker's residual stays as it is between averages, as there; each average counts all workers alike.
//
// A residual belongs to its worker, to one way of averaging, and to one slice of the model, where slices are averaged
// apart: it is in units of the model. What becomes of it:
// - A worker that has taken fewer steps, or none, sends of its residual all the same.
// - A worker that loses its state in an outage loses its residual with it, and that of the chunk that it owns in two
//   phases, and begins with none: the models lack what they held. What it had sent before is on its way, and is not
//   sent again.
// - An average fails as a whole where a worker has left, so that nothing that was sent is rejected.
// Optimizer moments are not sent. BatchNorm statistics that are averaged travel as they are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "workers/cluster/collective.hpp"
#include "workers/compression/compressor.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

// What of an average is needed when its exchange has come back.
struct SentDifference {
  ModelStatePtr mine{};
  ModelStatePtr from{};
  AveragePolicy policy{};
  Slice slice{};
  bool rest_is_needed = true;
  Step round{};
};

class CompressedAverage {
 public:
  // By slice of the model.
  CompressedAverage(const std::vector<std::shared_ptr<const Compressor>>& compressors, Training& training, Rank worker)
      : training_(training), worker_(worker) {
    for (const auto& compressor : compressors) slices_.push_back({.compressor = compressor});
  }

  int slices() const { return static_cast<int>(slices_.size()); }

  // The exchange that stands for this average, or, of two phases, the first; and then the second.
  Collective exchange(const Collective& average);
  Collective second_exchange(const SentDifference& sent, const SharedPackets& first, int chunk);
  // Of the newest exchange, once; it can be kept with the collective's number meanwhile.
  SentDifference newest() { return std::move(newest_); }
  void remember(std::int64_t collective) { under_way_[collective] = newest(); }
  SentDifference recall(std::int64_t collective) { return std::move(under_way_.extract(collective).mapped()); }

  // Parameters, and statistics where they are averaged: the same for all, so that one worker of a process asks for it.
  ModelStatePtr mean(const SentDifference& average, const SharedPackets& packets, int workers) const;
  // The worker's own model after the average.
  ModelStatePtr taken_up(const SentDifference& average, const ModelStatePtr& mean) const;

  // Its state is lost.
  void forget() {
    for (OfSlice& own : slices_) own.residual = own.owned = nullptr;
  }

 private:
  struct OfSlice {
    std::shared_ptr<const Compressor> compressor;
    CellPtr residual{};  // null: zeros
    CellPtr owned{};     // of the chunk that this worker owns; likewise
  };

  OfSlice& own(const SentDifference& sent) { return slices_[static_cast<std::size_t>(sent.slice.index)]; }
  std::size_t buffers(const SentDifference& sent) const;
  // The last exchange, in whose packets statistics stand behind the words.
  Collective last_exchange(const Exchange& exchange, const SentDifference& sent) const;

  Training& training_;
  Rank worker_;
  std::vector<OfSlice> slices_;
  Step rounds_{};  // averages so far, of any slice, on all workers alike
  SentDifference newest_;
  std::map<std::int64_t, SentDifference> under_way_;  // by the collective's number
};

}  // namespace syncopate
