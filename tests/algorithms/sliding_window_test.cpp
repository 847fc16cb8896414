#include "algorithms/asynchronous/sliding_window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

TEST(SlidingWindow, WithoutALimitEqualsAsynchronousSgdBitForBit) {
  SimulatedRun setup = three_workers(10);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  const auto async = setup.run(AsyncSgd({}));
  const auto window = setup.run(SlidingWindow(unlimited));
  EXPECT_EQ(window.parameters, async.parameters);
  EXPECT_EQ(window.log, async.log);
  EXPECT_EQ(window.totals.bytes, async.totals.bytes);
}

TEST(SlidingWindow, WithoutDelayEqualsSequentialSgdBitForBit) {
  SimulatedRun setup = three_workers(4);
  setup.momentum = 0.9;
  const auto outcome = setup.run(SlidingWindow(0, {.scaling = RateScaling::none}));
  Executor executor(0);
  Training training(setup.objective, make_sgd({.momentum = 0.9}), {}, executor);
  ModelStatePtr state = training.initial_state();
  for (int t = 0; t < 12; ++t)  // the workers take turns
    state = training.descend(state, Gradient(state, {Rank{t % 3}, t / 3, 0}, {}), setup.rate);
  EXPECT_EQ(outcome.parameters, training.values(state));
  EXPECT_DOUBLE_EQ(to_seconds(outcome.totals.end), 4 * (1.5 + 1.6 + 3.1));
  EXPECT_EQ(outcome.totals.staleness, Counts{12});
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(SlidingWindow, AGradientStartsWhenAllButTheLastFewBeforeItAreApplied) {
  const auto outcome = three_workers(3).run(SlidingWindow(1));
  // Gradients 0 and 1 go to workers 0 and 1 at once. Gradient 0 arrives at 1.5 s, so gradient 2 goes to worker 2.
  // Gradient 1 arrives at 1.6 s, so gradient 3 goes to worker 0, which delivers it at 3.1 s. Gradient 4 waits for
  // gradient 2, until 4.6 s. Then 4 and 5 go to workers 1 and 0, and arrive at 6.2 and 6.1 s. Gradients 6 and 7 go to
  // workers 2 and 0, and arrive at 9.3 and 7.7 s; gradient 9 arrives at 10.8 s.
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.100 s: kept 3, dropped 0",
                             "step 2 at 6.200 s: kept 3, dropped 0",
                             "step 3 at 10.800 s: kept 3, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{5, 2, 2}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{5, 3, 1}));
  expect_accounts_sum_to_the_time(outcome.totals);
}

// Records when gradients start and end.
class Watched : public SlidingWindow {
 public:
  using SlidingWindow::SlidingWindow;
  void run(Worker& worker) const override {
    while (worker.receive_model()) {
      Gradient gradient;
      const Time start = worker.now();
      gradient = worker.compute_step_gradient(Samples::in_turn);
      spans.emplace_back(start, worker.now());
      worker.send_gradient(std::move(gradient));
    }
  }
  mutable std::vector<std::pair<Time, Time>> spans;
};

TEST(SlidingWindow, NoGradientIsOvertakenByMoreThanTheDelay) {
  for (const std::int64_t delay : {0, 1, 5, 20}) {
    const SimulatedRun setup{.workers = 16,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 300},
                             .delays = {exponential_law()},
                             .objective = nullptr};
    const Watched window(delay);
    const auto totals = setup.run(window).totals;
    auto spans = window.spans;
    std::sort(spans.begin(), spans.end());  // by start, which is the order of their numbers
    std::ptrdiff_t most_open = 0;
    Time all_before_ended{};  // when all earlier ones except the last `delay` had ended
    for (std::size_t t = 0; t < spans.size(); ++t) {
      if (t > static_cast<std::size_t>(delay))
        all_before_ended = std::max(all_before_ended, spans[t - static_cast<std::size_t>(delay) - 1].second);
      EXPECT_LE(all_before_ended, spans[t].first);
      most_open = std::max(most_open, std::count_if(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(t) + 1,
                                                    [&](const auto& span) { return span.second > spans[t].first; }));
    }
    EXPECT_EQ(most_open, std::min<std::ptrdiff_t>(delay + 1, 16));
    EXPECT_LE(totals.staleness.size(), static_cast<std::size_t>(2 * delay + 1));
    for (const std::int64_t dropped : totals.dropped) EXPECT_LE(dropped, 1);  // those in progress at the end
  }
}

TEST(SlidingWindow, WorkersThatHaveLeftHoldNobodyBack) {
  SimulatedRun setup = three_workers(4);
  setup.data_of = {std::nullopt, 1, 2};
  const auto outcome = setup.run(SlidingWindow(1));
  EXPECT_EQ(outcome.totals.kept, (Counts{9, 1, 2}));
  EXPECT_EQ(outcome.samples, 12);
  expect_accounts_sum_to_the_time(outcome.totals);
  setup.data_of = {4, 1, 2};
  EXPECT_EQ(setup.run(SlidingWindow(0)).totals.kept, (Counts{4, 1, 2}));
}

}  // namespace
}  // namespace syncopate
