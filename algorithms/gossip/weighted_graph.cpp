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

double sum_of(const std::vector<Link>& links) {
  double sum = 0;
  for (const Link& link : links) sum += link.weight;
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
    for (std::vector<Link>& of_one : *side) std::ranges::sort(of_one, {}, &Link::worker);
}

double WeightedGraph::given_by(Rank sender) const { return sum_of(receivers_[at(sender)]); }

Matrix WeightedGraph::matrix() const {
  Matrix matrix(workers(), workers());
  for (const Rank from : Ranks(workers())) {
    matrix(from.value, from.value) = 1 - given_by(from);
    for (const Link& link : receivers_[at(from)]) matrix(link.worker.value, from.value) = link.weight;
  }
  return matrix;
}

double WeightedGraph::second_eigenvalue() const { return syncopate::second_eigenvalue(matrix()); }

double WeightedGraph::least_kept() const {
  double least = 1;
  for (const Rank worker : Ranks(workers())) least = std::min(least, 1 - given_by(worker));
  return least;
}

// From weights of 1 they go to W's fixed point; as many exchanges as four times there and back take the least of them.
double WeightedGraph::least_weight() const {
  std::vector<double> weights(receivers_.size(), 1.0);
  double least = 1;
  for (int exchange = 0; exchange < 8 * workers(); ++exchange) {
    std::vector<double> next(weights.size());
    for (const Rank from : Ranks(workers())) {
      next[at(from)] += weights[at(from)] * (1 - given_by(from));
      for (const Link& link : receivers_[at(from)]) next[at(link.worker)] += weights[at(from)] * link.weight;
    }
    weights = std::move(next);
    least = std::min(least, *std::ranges::min_element(weights));
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
    for (const Link& link : (backwards ? senders_ : receivers_)[at(worker)])
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
