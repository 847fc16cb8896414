#include "algorithms/gossip/graph.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <utility>

#include "workers/units/by_rank.hpp"

namespace syncopate {
namespace {

using Place = std::vector<int>;  // by direction of the grid; also a hop

class HopGraph final : public GossipGraph {
 public:
  // Worker r's place has r's digits, the last direction's the fastest. `hops`: of each exchange of a cycle.
  HopGraph(Place sizes, std::vector<std::vector<Place>> hops) : sizes_(std::move(sizes)), hops_(std::move(hops)) {}

  int workers() const override {
    int product = 1;
    for (const int size : sizes_) product *= size;
    return product;
  }
  int cycle() const override { return static_cast<int>(hops_.size()); }
  std::vector<Neighbour> receivers(Rank sender, Step exchange) const override {
    const auto& hops = hops_in(exchange);
    std::vector<Neighbour> result;
    for (const Place& hop : hops) result.push_back({further(sender, hop, 1), weight(hops)});
    return result;
  }
  // In such an order that on a ring the worker before one comes first here too.
  std::vector<Neighbour> senders(Rank receiver, Step exchange) const override {
    const auto& hops = hops_in(exchange);
    std::vector<Neighbour> result;
    for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop)
      result.push_back({further(receiver, *hop, -1), weight(hops)});
    return result;
  }
  double second_eigenvalue() const override;
  double least_kept() const override {
    double least = 1;
    for (const auto& hops : hops_) least = std::min(least, weight(hops));
    return least;
  }

 private:
  const std::vector<Place>& hops_in(Step exchange) const {
    return hops_[static_cast<std::size_t>(exchange.value()) % hops_.size()];
  }
  static double weight(const std::vector<Place>& hops) { return 1.0 / static_cast<double>(hops.size() + 1); }
  Place place_of(int number) const {
    Place place(sizes_.size());
    for (std::size_t d = sizes_.size(); d-- > 0; number /= sizes_[d]) place[d] = number % sizes_[d];
    return place;
  }
  Rank further(Rank from, const Place& hop, int sign) const {
    int number = 0, scale = 1, rest = from.value;
    for (std::size_t d = sizes_.size(); d-- > 0; scale *= sizes_[d], rest /= sizes_[d])
      number += scale * ((rest % sizes_[d] + sign * hop[d] + sizes_[d]) % sizes_[d]);
    return Rank{number};
  }

  Place sizes_;
  std::vector<std::vector<Place>> hops_;
};

// Of what commutes with all shifts, waves are the eigenvectors: one per place of the grid, of which the first is level.
double HopGraph::second_eigenvalue() const {
  double largest = 0;
  for (int wave = 1; wave < workers(); ++wave) {
    const Place k = place_of(wave);
    double product = 1;
    for (const auto& hops : hops_) {
      std::complex<double> sum = 1;
      for (const Place& hop : hops) {
        double turns = 0;
        for (std::size_t d = 0; d < sizes_.size(); ++d)
          turns += static_cast<double>(k[d] * hop[d] % sizes_[d]) / sizes_[d];
        sum += std::polar(1.0, 2 * std::numbers::pi * turns);
      }
      product *= weight(hops) * std::abs(sum);
    }
    largest = std::max(largest, product);
  }
  constexpr double rounded = 1e-12;  // what is 0 but for the waves' rounding
  return largest < rounded ? 0 : std::pow(largest, 1.0 / cycle());
}

std::vector<Place> powers_of_two_below(int workers) {
  std::vector<Place> hops;
  for (int hop = 1; hop < workers; hop *= 2) hops.push_back({hop});
  return hops;
}

class CompleteGraph final : public GossipGraph {
 public:
  explicit CompleteGraph(int workers) : workers_(workers) {}

  int workers() const override { return workers_; }
  std::vector<Neighbour> receivers(Rank self, Step) const override {
    std::vector<Neighbour> others;
    for (const Rank other : Ranks(workers_))
      if (other != self) others.push_back({other, 1.0 / workers_});
    return others;
  }
  std::vector<Neighbour> senders(Rank self, Step exchange) const override { return receivers(self, exchange); }
  double second_eigenvalue() const override { return 0; }
  double least_kept() const override { return 1.0 / workers_; }

 private:
  int workers_;
};

}  // namespace

std::vector<Rank> GossipGraph::all_receivers(Rank sender) const {
  std::vector<Rank> all;
  for (Step exchange; exchange < Step{cycle()}; ++exchange)
    for (const Neighbour& link : receivers(sender, exchange))
      if (std::ranges::find(all, link.worker) == all.end()) all.push_back(link.worker);
  return all;
}

LinksOfWorker::LinksOfWorker(const GossipGraph& graph, Rank self) {
  for (Step exchange; exchange < Step{graph.cycle()}; ++exchange) {
    receivers_.push_back(graph.receivers(self, exchange));
    senders_.push_back(graph.senders(self, exchange));
  }
}

std::int64_t GossipGraph::messages_in(Step exchanges) const {
  std::int64_t messages = 0;
  for (int turn = 0; turn < cycle(); ++turn) {
    const std::int64_t times = (exchanges.value() - turn + cycle() - 1) / cycle();
    for (const Rank worker : Ranks(workers())) messages += times * std::ssize(receivers(worker, Step{turn}));
  }
  return messages;
}

GossipGraphPtr ring(int workers) {
  std::vector<Place> hops;
  if (workers > 1) hops.push_back({-1});
  if (workers > 2) hops.push_back({1});
  return std::make_shared<HopGraph>(Place{workers}, std::vector<std::vector<Place>>{hops});
}

GossipGraphPtr torus(int rows, int columns) {
  std::vector<Place> hops;
  const Place sizes = {rows, columns};
  for (std::size_t d = 0; d < sizes.size(); ++d)
    for (const int by : {-1, 1}) {
      if (sizes[d] < 2 || (sizes[d] == 2 && by > 0)) continue;  // the one before is also the one after
      Place hop(sizes.size());
      hop[d] = by;
      hops.push_back(std::move(hop));
    }
  return std::make_shared<HopGraph>(sizes, std::vector<std::vector<Place>>{hops});
}

GossipGraphPtr hypercube(int workers) {
  std::size_t bits = 0;
  while ((1 << bits) < workers) ++bits;
  std::vector<Place> hops;
  for (std::size_t d = bits; d-- > 0;) {
    Place hop(bits);
    hop[d] = 1;
    hops.push_back(std::move(hop));
  }
  return std::make_shared<HopGraph>(Place(bits, 2), std::vector<std::vector<Place>>{hops});
}

GossipGraphPtr complete_graph(int workers) { return std::make_shared<CompleteGraph>(workers); }

GossipGraphPtr exponential_graph(int workers) {
  return std::make_shared<HopGraph>(Place{workers}, std::vector<std::vector<Place>>{powers_of_two_below(workers)});
}

GossipGraphPtr one_peer_exponential(int workers) {
  std::vector<std::vector<Place>> hops;
  for (Place& hop : powers_of_two_below(workers)) hops.push_back({std::move(hop)});
  if (hops.empty()) hops.emplace_back();  // one worker
  return std::make_shared<HopGraph>(Place{workers}, std::move(hops));
}

}  // namespace syncopate
