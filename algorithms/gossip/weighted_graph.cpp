#include "algorithms/gossip/weighted_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "workers/linear_algebra/second_eigenvalue.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {
namespace {

// What weights with six decimals miss a sum by. It falls to what the worker keeps.
constexpr double rounding = 1e-5;

double sum_of(const std::vector<Neighbour>& links) {
  double sum = 0;
  for (const Neighbour& link : links) sum += link.weight;
  return sum;
}

}  // namespace

WeightedGraph::WeightedGraph(int workers, const std::vector<WeightedLink>& links)
    : receivers_(static_cast<std::size_t>(workers)), senders_(static_cast<std::size_t>(workers)) {
  for (const auto& [from, to, weight] : links) {
    receivers_[static_cast<std::size_t>(from)].push_back({Rank{to}, weight});
    senders_[static_cast<std::size_t>(to)].push_back({Rank{from}, weight});
  }
  for (auto* const side : {&receivers_, &senders_})
    for (std::vector<Neighbour>& of_one : *side) std::ranges::sort(of_one, {}, &Neighbour::worker);
  for (const Rank worker : Ranks(workers)) least_kept_ = std::min(least_kept_, 1 - given_by(worker));
  least_weight_ = find_least_weight();
}

double WeightedGraph::given_by(Rank sender) const { return sum_of(receivers_[at(sender)]); }

Matrix WeightedGraph::matrix() const {
  Matrix matrix(workers(), workers());
  for (const Rank from : Ranks(workers())) {
    matrix(from.value, from.value) = 1 - given_by(from);
    for (const Neighbour& link : receivers_[at(from)]) matrix(link.worker.value, from.value) = link.weight;
  }
  return matrix;
}

double WeightedGraph::second_eigenvalue() const { return syncopate::second_eigenvalue(matrix()); }

// From weights of 1 they go to W's fixed point, and on the way below it at most in the first few exchanges.
double WeightedGraph::find_least_weight() const {
  constexpr double settled = 1e-9;
  std::vector<double> weights(receivers_.size(), 1.0);
  double least = 1;
  for (int exchange = 0; exchange < 8 * workers(); ++exchange) {
    std::vector<double> next(weights.size());
    for (const Rank from : Ranks(workers())) {
      double kept = weights[at(from)];
      for (const Neighbour& link : receivers_[at(from)]) {
        const double given = weights[at(from)] * link.weight;
        next[at(link.worker)] += given;
        kept -= given;
      }
      next[at(from)] += kept;
    }
    double change = 0;
    for (std::size_t i = 0; i < next.size(); ++i) {
      least = std::min(least, next[i]);
      change = std::max(change, std::abs(next[i] - weights[i]));
    }
    if (change < settled) break;
    weights = std::move(next);
  }
  return least;
}

std::vector<char> WeightedGraph::reached(bool backwards) const {
  std::vector<char> reached(receivers_.size());
  std::vector<Rank> next = {Rank{0}};
  reached[0] = true;
  while (!next.empty()) {
    const Rank worker = next.back();
    next.pop_back();
    for (const Neighbour& link : (backwards ? senders_ : receivers_)[at(worker)])
      if (!std::exchange(reached[at(link.worker)], true)) next.push_back(link.worker);
  }
  return reached;
}

std::optional<std::string> WeightedGraph::why_not_connected() const {
  for (const bool backwards : {false, true}) {
    const std::vector<char> found = reached(backwards);
    const auto missing = std::ranges::find(found, 0);
    if (missing == found.end()) continue;
    const auto other = missing - found.begin();
    return backwards ? fmt::format("must be connected: nothing comes from worker {} to worker 0", other)
                     : fmt::format("must be connected: nothing comes from worker 0 to worker {}", other);
  }
  return std::nullopt;
}

std::optional<std::string> WeightedGraph::why_not_column_stochastic() const {
  for (const Rank worker : Ranks(workers()))
    if (!(given_by(worker) < 1 - rounding))
      return fmt::format("must leave each worker a part of its own: worker {} gives others {:.6g} of its model",
                         worker.value, given_by(worker));
  return std::nullopt;
}

std::optional<std::string> WeightedGraph::why_not_doubly_stochastic() const {
  if (auto why = why_not_column_stochastic()) return why;
  for (const Rank worker : Ranks(workers())) {
    const double taken = sum_of(senders_[at(worker)]), given = given_by(worker);
    if (std::abs(taken - given) > rounding)
      return fmt::format("must be doubly stochastic: worker {} gives others {:.6g} of its model and takes {:.6g}",
                         worker.value, given, taken);
  }
  return std::nullopt;
}

void weigh(std::vector<WeightedLink>& links, int workers, LinkWeights rule) {
  std::vector<int> degrees(static_cast<std::size_t>(workers));
  for (const WeightedLink& link : links) ++degrees[static_cast<std::size_t>(link.from)];
  for (WeightedLink& link : links) {
    const int of_sender = degrees[static_cast<std::size_t>(link.from)];
    const int of_receiver = degrees[static_cast<std::size_t>(link.to)];
    const int degree = rule == LinkWeights::degree ? of_sender : std::max(of_sender, of_receiver);
    link.weight = 1.0 / (degree + 1);
  }
}

}  // namespace syncopate
