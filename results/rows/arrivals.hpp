// When the k-th gradient of each round arrived: the file arrivals.csv, and means over the rounds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workers/cluster/gradient_arrival.hpp"

namespace syncopate {

// The k-th arrivals of the rounds.
struct MeanArrival {
  double mean_s = 0;        // since the round's begin
  std::int64_t rounds = 0;  // that had as many
  bool operator==(const MeanArrival&) const = default;
};

// By rounds, as they began, and within a round as they arrived; of what came at once, by rank.
std::vector<GradientArrival> in_order(std::vector<GradientArrival> arrivals);

// [k - 1]; of arrivals that are in order.
std::vector<MeanArrival> mean_arrivals(std::span<const GradientArrival> arrivals);

// The same as a table: step,k,worker,arrival_s; k counts from 1 in every round.
std::string arrivals_csv(std::span<const GradientArrival> arrivals);

}  // namespace syncopate
