// Stochastic gradient push beside a second implementation in double precision that keeps x and w, as the paper's
// Algorithm 1 does, and the times of all messages. Workers differ in speed, so that with overlap messages come early
// and late and weights are far from 1 while gradients are taken.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "tests/algorithms/kicked_workers.hpp"

namespace syncopate {
namespace {

using Vector = std::array<double, 4>;

struct PushSum {
  int workers, micro_batches, steps, overlap;
  double rate;
  std::int64_t latency_ns;
  std::vector<std::int64_t> step_ns{};  // of computing, by worker

  struct Push {
    int to, step;
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

  // x <- x - rate g(x / w); half of x and w go to the one whose turn it is.
  void take_step(int i) {
    Peer& peer = peers[at(i)];
    const std::int64_t now_ns = *peer.computed_at_ns;
    peer.computed_at_ns.reset();
    peer.began_waiting_ns = now_ns;
    least_weight = std::min(least_weight, peer.weight);
    int reach = 0;  // powers of two below the number of workers
    while ((1 << reach) < workers) ++reach;
    Push push{.to = (i + (1 << peer.step % reach)) % workers,
              .step = peer.step,
              .arrival_ns = now_ns + latency_ns,
              .x = {},
              .weight = peer.weight / 2};
    for (std::size_t j = 0; j < peer.x.size(); ++j) {
      double gradient = peer.x[j] / peer.weight;
      for (int m = 0; m < micro_batches; ++m)
        gradient -= PullObjective::target({Rank{i}, Step{peer.step}, m}, j) / static_cast<double>(micro_batches);
      push.x[j] = peer.x[j] = (peer.x[j] - rate * gradient) / 2;
    }
    peer.weight /= 2;
    pushes.push_back(push);
    if (overlap > 0) absorb(i, [&](const Push& other) { return other.arrival_ns <= now_ns; });
  }

  // Once all messages of the steps up to `overlap` before its own have been sent: they are waited for.
  void go_on_if_possible(int i) {
    Peer& peer = peers[at(i)];
    if (peer.computed_at_ns || peer.step == steps) return;
    const int last = peer.step - overlap;
    int sent = 0;
    std::int64_t now_ns = peer.began_waiting_ns;
    for (const Push& push : pushes) {
      if (push.to != i || push.step > last) continue;
      ++sent;
      if (!push.is_taken) now_ns = std::max(now_ns, push.arrival_ns);
    }
    if (sent < last + 1) return;  // one of each step
    absorb(i, [&](const Push& push) { return push.step <= last; });
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
      const StochasticGradientPush method{Step{overlap}};
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

}  // namespace
}  // namespace syncopate
