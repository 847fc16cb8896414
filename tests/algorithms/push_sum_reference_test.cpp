// Stochastic gradient push beside a second implementation in double precision that keeps x and w, as the paper's
// Algorithm 1 does, and the times of all messages. Workers differ in speed, so that with overlap messages come early
// and late and weights are far from 1 while gradients are taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "tests/algorithms/kicked_workers.hpp"

namespace syncopate {
namespace {

using Vector = std::array<double, 4>;

// How far the exchange's messages go: 1, 2, 4, ... in turn.
int hop(int workers, int exchange) {
  int reach = 0;  // powers of two below the number of workers
  while ((1 << reach) < workers) ++reach;
  return 1 << exchange % reach;
}

// x - rate g(x / w), the gradient being the mean over the micro-batches of a step.
Vector stepped(Vector x, double weight, double rate, const MicroBatch& first, int micro_batches) {
  for (std::size_t j = 0; j < x.size(); ++j) {
    double gradient = x[j] / weight;
    for (int m = 0; m < micro_batches; ++m)
      gradient -= PullObjective::target({first.worker, first.step, m}, j) / static_cast<double>(micro_batches);
    x[j] -= rate * gradient;
  }
  return x;
}

struct PushSum {
  int workers, micro_batches, steps, overlap;
  double rate;
  std::int64_t latency_ns;
  std::vector<std::int64_t> step_ns{};  // of computing, by worker

  struct Push {
    int to, exchange;
    std::int64_t arrival_ns;
    Vector x;
    double weight;
    bool is_taken = false;
  };
  struct Peer {
    Vector x{1, 1, 1, 1};
    double weight = 1;
    int step = 0;                                // under way
    std::optional<std::int64_t> computed_at_ns;  // that step; none: it waits for messages, or has ended
    std::int64_t began_waiting_ns = 0;
  };
  std::vector<Peer> peers{};
  std::vector<Push> pushes{};
  std::vector<std::int64_t> round_ends_ns{};
  double least_weight = 1;  // that a gradient was divided by

  void run() {
    peers.assign(static_cast<std::size_t>(workers), {});
    round_ends_ns.assign(static_cast<std::size_t>(steps), 0);
    for (int i = 0; i < workers; ++i) peers[at(i)].computed_at_ns = step_ns[at(i)];
    while (const auto next = first_to_finish()) {
      take_step(*next);
      for (int i = 0; i < workers; ++i) go_on_if_possible(i);
    }
    for (int i = 0; i < workers; ++i) absorb(i, [](const Push&) { return true; });
  }
  double parameter(int i, std::size_t j) const { return peers[at(i)].x[j] / peers[at(i)].weight; }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::optional<int> first_to_finish() const {
    std::optional<int> first;
    for (int i = 0; i < workers; ++i)
      if (peers[at(i)].computed_at_ns && (!first || *peers[at(i)].computed_at_ns < *peers[at(*first)].computed_at_ns))
        first = i;
    return first;
  }

  int every() const { return std::max(overlap, 1); }

  // x <- x - rate g(x / w); in every tau-th step half of x and w go to the one whose turn it is.
  void take_step(int i) {
    Peer& peer = peers[at(i)];
    const std::int64_t now_ns = *peer.computed_at_ns;
    peer.computed_at_ns.reset();
    peer.began_waiting_ns = now_ns;
    least_weight = std::min(least_weight, peer.weight);
    peer.x = stepped(peer.x, peer.weight, rate, {Rank{i}, Step{peer.step}, 0}, micro_batches);
    if (peer.step % every() == 0) {
      const int exchange = peer.step / every();
      Push push{.to = (i + hop(workers, exchange)) % workers,
                .exchange = exchange,
                .arrival_ns = now_ns + latency_ns,
                .x = {},
                .weight = peer.weight / 2};
      for (std::size_t j = 0; j < peer.x.size(); ++j) push.x[j] = peer.x[j] /= 2;
      peer.weight /= 2;
      pushes.push_back(push);
    }
    if (overlap > 0) absorb(i, [&](const Push& other) { return other.arrival_ns <= now_ns; });
  }

  // Once all messages of the exchanges but the last have been sent: they are waited for; without overlap of the last
  // too.
  void go_on_if_possible(int i) {
    Peer& peer = peers[at(i)];
    if (peer.computed_at_ns || peer.step == steps) return;
    const int last = overlap > 0 ? peer.step / overlap - 1 : peer.step;
    int sent = 0;
    std::int64_t now_ns = peer.began_waiting_ns;
    for (const Push& push : pushes) {
      if (push.to != i || push.exchange > last) continue;
      ++sent;
      if (!push.is_taken) now_ns = std::max(now_ns, push.arrival_ns);
    }
    if (sent < last + 1) return;  // one of each exchange
    absorb(i, [&](const Push& push) { return push.exchange <= last; });
    auto& end_ns = round_ends_ns[at(peer.step)];
    end_ns = std::max(end_ns, now_ns);
    if (++peer.step < steps) peer.computed_at_ns = now_ns + step_ns[at(i)];
  }

  template <typename Wanted>
  void absorb(int i, Wanted wanted) {
    Peer& peer = peers[at(i)];
    for (Push& push : pushes) {
      if (push.to != i || push.is_taken || !wanted(push)) continue;
      push.is_taken = true;
      for (std::size_t j = 0; j < peer.x.size(); ++j) peer.x[j] += push.x[j];
      peer.weight += push.weight;
    }
  }
};

TEST(PushSum, TrainingIsThatOfASecondImplementationWithXAndWeights) {
  const std::vector<double> delays_s = {0.0, 0.371, 1.213, 0.133, 0.719, 0.293};
  double least_weight = 1;
  for (const int workers : {2, 3, 5, 6})
    for (const int overlap : {0, 1, 2, 4}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, overlap " << overlap);
      const SimulatedRun setup{.workers = workers,
                               .micro_batches = 2,
                               .network_s = 0.47,
                               .rate = 0.05,
                               .budget = {.steps = 11},
                               .delays = {std::make_shared<DelayOfWorker>(delays_s)}};
      const StochasticGradientPush method({.overlap_steps = overlap});
      const WithLastModels recorded(method, workers);
      const auto outcome = setup.run(recorded);

      PushSum expected{.workers = workers,
                       .micro_batches = 2,
                       .steps = 11,
                       .overlap = overlap,
                       .rate = setup.rate,
                       .latency_ns = 470'000'000};
      for (int i = 0; i < workers; ++i)
        expected.step_ns.push_back(std::llround(2e9 * (1 + delays_s[static_cast<std::size_t>(i)])));
      expected.run();
      least_weight = std::min(least_weight, expected.least_weight);

      for (int i = 0; i < workers; ++i)
        for (std::size_t j = 0; j < 4; ++j)
          EXPECT_NEAR(recorded.models[static_cast<std::size_t>(i)][j], expected.parameter(i, j),
                      1e-5 * std::abs(expected.parameter(i, j)))
              << "worker " << i << ", parameter " << j;
      ASSERT_EQ(outcome.rounds.size(), 11u);
      for (std::size_t step = 0; step < 11; ++step)
        EXPECT_EQ(outcome.rounds[step].end.time_since_epoch().count(), expected.round_ends_ns[step]) << step;
    }
  EXPECT_LT(least_weight, 0.5);
}

// The released code's form, of x and w: before each gradient a worker takes in its message of the exchange under way if
// it is there, waits for it once it is tau steps old, and only then sends the next half. Every worker's model after
// `recorded` steps, while nobody has ended yet.
struct ReleasedPushSum {
  int workers, micro_batches, recorded, overlap;
  double rate;
  std::int64_t latency_ns;
  std::vector<std::int64_t> step_ns{};

  struct Push {
    std::int64_t arrival_ns;
    Vector x;
    double weight;
  };
  struct Peer {
    Vector x{1, 1, 1, 1};
    double weight = 1;
    int step = 0, exchanges = 0, begun_at = 0;
    std::int64_t ready_ns = 0;
    bool waits = false;              // for a message that has not been sent yet
    std::map<int, Push> received{};  // by exchange
  };
  std::vector<Peer> peers{};
  std::vector<Vector> models{};
  std::size_t there = 0;  // workers that have come so far; they go on, since others may wait for them

  void run() {
    peers.assign(step_ns.size(), {});
    models.assign(step_ns.size(), {});
    while (there < peers.size()) {
      std::size_t next = peers.size();
      for (std::size_t i = 0; i < peers.size(); ++i)
        if (!peers[i].waits && (next == peers.size() || is_before(i, next))) next = i;
      go_on(next);
    }
  }

 private:
  bool is_before(std::size_t i, std::size_t j) const { return peers[i].ready_ns < peers[j].ready_ns; }

  void go_on(std::size_t i) {
    Peer& peer = peers[i];
    if (peer.exchanges > 0) {
      const auto found = peer.received.find(peer.exchanges - 1);
      const bool is_sent = found != peer.received.end();
      if (!is_sent || found->second.arrival_ns > peer.ready_ns) {
        if (peer.step - peer.begun_at < overlap) return take_step(i);
        peer.waits = !is_sent;
        if (is_sent) peer.ready_ns = found->second.arrival_ns;
        return;
      }
      for (std::size_t j = 0; j < peer.x.size(); ++j) peer.x[j] += found->second.x[j];
      peer.weight += found->second.weight;
    }
    const auto to = (i + static_cast<std::size_t>(hop(workers, peer.exchanges))) % peers.size();
    for (double& x : peer.x) x /= 2;
    peer.weight /= 2;
    peers[to].received[peer.exchanges] = {peer.ready_ns + latency_ns, peer.x, peer.weight};
    peers[to].waits = false;
    peer.begun_at = peer.step;
    ++peer.exchanges;
    take_step(i);
  }

  void take_step(std::size_t i) {
    Peer& peer = peers[i];
    peer.x = stepped(peer.x, peer.weight, rate, {Rank{static_cast<int>(i)}, Step{peer.step}, 0}, micro_batches);
    peer.ready_ns += step_ns[i];
    if (++peer.step != recorded) return;
    for (std::size_t j = 0; j < peer.x.size(); ++j) models[i][j] = peer.x[j] / peer.weight;
    ++there;
  }
};

TEST(PushSum, AsReleasedItIsThatOfASecondImplementationToo) {
  const std::vector<double> delays_s = {0.0, 0.371, 1.213, 0.133, 0.719, 0.293};
  for (const int workers : {2, 3, 5, 6})
    for (const int overlap : {1, 2, 4})
      for (const double latency_s : {0.47, 2.9}) {
        SCOPED_TRACE(testing::Message() << workers << " workers, overlap " << overlap << ", " << latency_s << " s");
        const SimulatedRun setup{.workers = workers,
                                 .micro_batches = 2,
                                 .network_s = latency_s,
                                 .rate = 0.05,
                                 .budget = {.steps = 36},
                                 .delays = {std::make_shared<DelayOfWorker>(delays_s)},
                                 .own_models_every = 11};
        const auto outcome =
            setup.run(StochasticGradientPush({.overlap_steps = overlap, .overlap = PushOptions::Overlap::released}));
        ReleasedPushSum expected{.workers = workers,
                                 .micro_batches = 2,
                                 .recorded = 11,
                                 .overlap = overlap,
                                 .rate = setup.rate,
                                 .latency_ns = std::llround(1e9 * latency_s)};
        for (int i = 0; i < workers; ++i)
          expected.step_ns.push_back(std::llround(2e9 * (1 + delays_s[static_cast<std::size_t>(i)])));
        expected.run();
        const auto& found = outcome.own_values.at(Step{11});
        ASSERT_EQ(std::ssize(found), workers);
        for (const auto& [worker, model] : found) {
          const Vector& other = expected.models[static_cast<std::size_t>(worker.value)];
          for (std::size_t j = 0; j < 4; ++j)
            EXPECT_NEAR(model[j], other[j], 1e-5 * std::abs(other[j])) << worker.value;
        }
      }
}

}  // namespace
}  // namespace syncopate
