#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::Each;
using Added = std::vector<double>;

Added added(const DelayProcess& process, int worker, Step step, std::size_t n = 4, std::uint32_t first = 0,
            std::uint64_t seed = 7) {
  Added sums(n, 0.0);
  process.add({.seed = seed, .stream = 2, .worker = Rank{worker}, .step = step}, first, sums);
  return sums;
}

TEST(ScopedDelay, ScopeStepIsOneDrawBeforeTheFirstMicroBatch) {
  const auto plain = exponential_delay(2);
  const auto scoped = scoped_delay(plain, {.scope = DelayScope::step});
  for (const int worker : {0, 3})
    for (const Step step : {0, 1, 50}) {
      const double draw = added(*plain, worker, step)[0];
      EXPECT_EQ(added(*scoped, worker, step), (Added{draw, 0, 0, 0}));
      EXPECT_EQ(added(*scoped, worker, step, 2, 1), (Added{0, 0}));
    }
  EXPECT_NE(added(*scoped, 0, 0), added(*scoped, 0, 1));
  EXPECT_NE(added(*scoped, 0, 0), added(*scoped, 1, 0));
}

// A draw that a step would begin with, on all of its micro-batches, in whatever pieces they are asked for.
TEST(ScopedDelay, ScopeWholeStepIsOneDrawOnEachMicroBatch) {
  const auto plain = exponential_delay(2);
  const auto scoped = scoped_delay(plain, {.scope = DelayScope::whole_step});
  for (const int worker : {0, 3})
    for (const Step step : {0, 1, 50}) {
      const double draw = added(*plain, worker, step)[0];
      EXPECT_THAT(added(*scoped, worker, step), Each(draw));
      EXPECT_THAT(added(*scoped, worker, step, 2, 1), Each(draw));
    }
  EXPECT_NE(added(*scoped, 0, 0), added(*scoped, 0, 1));
}

TEST(ScopedDelay, ScopeWorkerIsOneDrawForTheRunOnEachMicroBatch) {
  const auto scoped = scoped_delay(exponential_delay(2), {.scope = DelayScope::worker});
  std::vector<double> draws;
  for (int worker = 0; worker < 20'000; ++worker) {
    draws.push_back(added(*scoped, worker, 0)[0]);
    if (worker < 100) {
      EXPECT_THAT(added(*scoped, worker, 99, 3, 5), Each(draws.back()));
    }
  }
  EXPECT_NE(added(*scoped, 0, 0, 4, 0, 8), added(*scoped, 0, 0));  // another seed
  double mean = 0;
  for (const double draw : draws) mean += draw / 20'000;
  EXPECT_NEAR(mean, 2, 4 * 2 / std::sqrt(20'000));  // four standard errors of an exponential's mean
  // Not the number that a micro-batch of step 0 would draw.
  EXPECT_NE(added(*exponential_delay(2), 0, 0)[0], draws[0]);
}

TEST(ScopedDelay, GroupsOfConsecutiveRanksShareTheirDraws) {
  const auto plain = exponential_delay(2);
  for (const DelayScope scope : {DelayScope::micro_batch, DelayScope::step, DelayScope::worker}) {
    const auto racks = scoped_delay(plain, {.scope = scope, .group_size = 3});
    for (const Step step : {0, 8}) {
      EXPECT_EQ(added(*racks, 0, step), added(*racks, 2, step));
      EXPECT_EQ(added(*racks, 3, step), added(*racks, 5, step));
      EXPECT_NE(added(*racks, 2, step), added(*racks, 3, step));
    }
  }
  const auto racks = scoped_delay(plain, {.group_size = 3});
  EXPECT_EQ(added(*racks, 7, 1), added(*plain, 2, 1));
}

TEST(ScopedDelay, ConcernsTheWorkersThatAreNamedAlone) {
  const auto server = scoped_delay(constant_delay(2), {.group_size = 2, .workers = {4, 1}});
  for (int worker = 0; worker < 8; ++worker) {
    const bool concerned = worker == 1 || worker == 4;
    EXPECT_THAT(added(*server, worker, 3), Each(concerned ? 2.0 : 0.0));
    EXPECT_EQ(server->shortest_s(Rank{worker}), concerned ? 2.0 : 0.0);
    EXPECT_EQ(server->step_law({.worker = Rank{worker}}, 5).mean_s, concerned ? 10 : 0);
  }
}

TEST(ScopedDelay, WhoIsNotNamedHasShorterMicroBatches) {
  const ComputeTime compute_time(7, 1.5, {}, {scoped_delay(constant_delay(2), {.workers = {1}}), constant_delay(0.25)});
  EXPECT_DOUBLE_EQ(compute_time.shortest(Rank{0}), 1.75);
  EXPECT_DOUBLE_EQ(compute_time.shortest(Rank{1}), 3.75);
}

TEST(ScopedDelay, WithoutKeysIsTheProcessItself) {
  const auto plain = exponential_delay(2);
  EXPECT_EQ(scoped_delay(plain, {}), plain);
}

// Mean lengths and the share of on-steps over 400,000 steps, four standard errors; n runs of geometric length with mean
// m have a mean with standard deviation sqrt(m (m - 1) / n). The share of a chain whose next state is correlated by
// r = 1 - a - b with this one: variance p (1 - p) (1 + r) / (1 - r) per step.
TEST(Bursts, HaveTheStationaryShareAndTheMeanLengths) {
  constexpr int steps = 400'000;
  for (const auto& [mean_on, mean_off] : {std::pair{5.0, 20.0}, {30.0, 10.0}, {1.25, 4.0}, {1.2, 1.6}, {1.0, 3.0}}) {
    const Bursts bursts(mean_on, mean_off, 1);
    const double p = mean_on / (mean_on + mean_off), r = 1 - 1 / mean_on - 1 / mean_off;
    EXPECT_NEAR(bursts.share(), p, 1e-12);
    int on_steps = 0, on_runs = 0, off_runs = 0;
    bool before = false;
    for (int step = 0; step < steps; ++step) {
      const bool on = bursts.is_on({.seed = 5, .worker = Rank{0}, .step = Step{step}});
      on_steps += on;
      if (step == 0 || on != before) ++(on ? on_runs : off_runs);
      before = on;
    }
    EXPECT_NEAR(static_cast<double>(on_steps) / steps, p, 4 * std::sqrt(p * (1 - p) * (1 + r) / (1 - r) / steps));
    const double on_length = static_cast<double>(on_steps) / on_runs;
    const double off_length = static_cast<double>(steps - on_steps) / off_runs;
    EXPECT_NEAR(on_length, mean_on, 4 * std::sqrt(mean_on * (mean_on - 1) / on_runs) + 1e-9);
    EXPECT_NEAR(off_length, mean_off, 4 * std::sqrt(mean_off * (mean_off - 1) / off_runs) + 1e-9);
  }
}

// Every step is on with the stationary share, the first too; over workers, whose chains are independent.
TEST(Bursts, AreStationaryFromTheFirstStepOn) {
  constexpr int workers = 20'000;
  const Bursts bursts(8, 24, workers);
  for (const int step : {0, 1, 40}) {
    int on = 0;
    for (int worker = 0; worker < workers; ++worker)
      on += bursts.is_on({.seed = 6, .worker = Rank{worker}, .step = Step{step}});
    EXPECT_NEAR(on / static_cast<double>(workers), 0.25, 4 * std::sqrt(0.25 * 0.75 / workers)) << step;
  }
}

// A second computation: the chain forwards from step 0, by the transition probabilities alone.
TEST(Bursts, ArePureFunctionsOfWorkerAndStepInAnyOrder) {
  constexpr int workers = 5, steps = 300;
  for (const auto& [mean_on, mean_off] : {std::pair{6.0, 18.0}, {1.25, 1.6}, {1.0, 1.0}, {1000.0, 3000.0}}) {
    std::vector<std::vector<bool>> forward(workers);
    for (int worker = 0; worker < workers; ++worker) {
      bool on = false;
      for (int step = 0; step < steps; ++step) {
        const double u = RandomStream{.seed = 9, .worker = Rank{worker}, .step = Step{step}}.uniform(0);
        on = u < (step == 0 ? mean_on / (mean_on + mean_off) : on ? 1 - 1 / mean_on : 1 / mean_off);
        forward[worker].push_back(on);
      }
    }
    const Bursts remembers(mean_on, mean_off, workers), forgets(mean_on, mean_off, 0);
    for (int i = 0; i < workers * steps; ++i) {
      const int shuffled = i * 677 % (workers * steps);  // 677 is prime: each once
      const int worker = shuffled % workers, step = shuffled / workers;
      const RandomStream stream{.seed = 9, .worker = Rank{worker}, .step = Step{step}};
      ASSERT_EQ(remembers.is_on(stream), forward[worker][step]) << worker << " " << step;
      ASSERT_EQ(forgets.is_on(stream), forward[worker][step]) << worker << " " << step;
      ASSERT_EQ(remembers.is_on(stream), forward[worker][step]);
    }
  }
}

TEST(Bursts, LastAtLeastOneStepAndSoDoPauses) {
  EXPECT_NO_THROW(Bursts(1, 1, 4));
  for (const double bad : {0.0, 0.99, -3.0, std::nan("")}) {
    EXPECT_THROW(Bursts(bad, 2, 4), std::invalid_argument) << bad;
    EXPECT_THROW(Bursts(2, bad, 4), std::invalid_argument) << bad;
  }
}

TEST(ScopedDelay, CountsInBurstsAlone) {
  const auto plain = exponential_delay(2);
  const DelayReach in_bursts{.bursts = BurstLengths{3, 5}, .cluster_size = 4};
  const auto bursty = scoped_delay(plain, in_bursts);
  int on = 0;
  for (int step = 0; step < 400; ++step) {
    const Added here = added(*bursty, 1, step);
    const bool counts = here[0] > 0;
    EXPECT_EQ(here, counts ? added(*plain, 1, step) : Added(4, 0.0));
    on += counts;
  }
  EXPECT_GT(on, 100);
  EXPECT_LT(on, 200);
  DelayReach of_racks = in_bursts;
  of_racks.group_size = 2;
  const auto racks = scoped_delay(plain, of_racks);
  for (int step = 0; step < 100; ++step) EXPECT_EQ(added(*racks, 2, step), added(*racks, 3, step));
}

// Means and variances of a worker's step time over the steps of a run, against the law; four standard errors of the
// mean, five per cent of the variance (its standard error is below one for 40,000 steps of normal draws).
TEST(ScopedDelay, LawOfAStepIsThatOfTheSteps) {
  const auto draw = normal_delay(0.5, 0.2);
  constexpr int steps = 40'000, micro_batches = 3;
  const std::vector<DelayReach> reaches = {
      {},
      {.scope = DelayScope::step},
      {.scope = DelayScope::whole_step},
      {.scope = DelayScope::worker},
      {.group_size = 2},
      {.workers = {1}},
      {.workers = {0}},
      {.bursts = BurstLengths{2, 2}, .cluster_size = 2},
      {.scope = DelayScope::step, .bursts = BurstLengths{2, 4}, .cluster_size = 2},
      {.scope = DelayScope::whole_step, .bursts = BurstLengths{2, 2}, .cluster_size = 2},
      {.scope = DelayScope::worker, .bursts = BurstLengths{2, 2}, .cluster_size = 2},
  };
  for (std::size_t i = 0; i < reaches.size(); ++i) {
    const ComputeTime time(3, 0.25, {1, 2}, {scoped_delay(draw, reaches[i])});
    const StepLaw law = time.step_law(Rank{1}, micro_batches);
    double sum = 0, squares = 0;
    std::vector<Duration> durations(micro_batches);
    for (int step = 0; step < steps; ++step) {
      time.durations(Rank{1}, Step{step}, 0, durations);
      double total = 0;
      for (const Duration duration : durations) total += to_seconds(duration);
      sum += total, squares += total * total;
    }
    const double mean = sum / steps, variance = squares / steps - mean * mean;
    // In bursts steps are correlated; with means of 2 and 2 steps not at all, with 2 and 4 by 1/4.
    EXPECT_NEAR(mean, law.mean_s, 4 * std::sqrt(1.67 * law.variance_s2 / steps) + 1e-6) << i;
    EXPECT_NEAR(variance, law.variance_s2, 0.05 * law.variance_s2 + 1e-9) << i;
  }
}

TEST(ScopedDelay, ShortestMicroBatchIsTheInfimumOverAll) {
  const auto shortest = [](std::shared_ptr<const DelayProcess> delay) {
    return ComputeTime(1, 0.25, {2}, {std::move(delay)}).shortest(Rank{0});
  };
  EXPECT_DOUBLE_EQ(shortest(constant_delay(1)), 1.5);
  EXPECT_DOUBLE_EQ(shortest(exponential_delay(1)), 0.5);
  EXPECT_DOUBLE_EQ(shortest(shifted_exponential_delay(3, 1)), 3.5);
  EXPECT_DOUBLE_EQ(shortest(scoped_delay(constant_delay(1), {.scope = DelayScope::step})), 0.5);
  EXPECT_DOUBLE_EQ(shortest(scoped_delay(constant_delay(1), {.scope = DelayScope::worker})), 1.5);
  EXPECT_DOUBLE_EQ(shortest(scoped_delay(constant_delay(1), {.bursts = BurstLengths{2, 2}})), 0.5);
  EXPECT_DOUBLE_EQ(shortest(drift_delay(1, 5)), 0.5);
  EXPECT_DOUBLE_EQ(shortest(normal_delay(0, 0.1)), 1e-9);  // no micro-batch takes less than a nanosecond
}

// Micro-batch m of step s on worker n is there where m < 3 + n, from 0 to 2 workers.
class Recorded final : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    EXPECT_LE(first + added_s.size(), 3 + static_cast<std::size_t>(stream.worker.value));
  }
  double mean_s() const override { return 0; }
  std::size_t known_ahead(const RandomStream& stream, std::uint32_t first, std::size_t most) const override {
    const std::size_t count = 3 + static_cast<std::size_t>(stream.worker.value);
    return std::clamp<std::size_t>(count - std::min<std::size_t>(first, count), 1, most);
  }
  bool can_run_out() const override { return true; }
};

// What may run out still may, and is known ahead as far as it is there for those, and then, whom and when it concerns.
TEST(ScopedDelay, IsKnownAheadAsFarAsItIsAskedFor) {
  const auto recorded = std::make_shared<Recorded>();
  const auto known = [&](const DelayReach& reach, int worker, std::uint32_t first = 0, Step step = 0) {
    const auto scoped = scoped_delay(recorded, reach);
    EXPECT_TRUE(scoped->can_run_out());
    return scoped->known_ahead({.seed = 7, .worker = Rank{worker}, .step = step}, first, 12);
  };
  EXPECT_EQ(known({.workers = {1}}, 1), 4u);
  EXPECT_EQ(known({.workers = {1}}, 1, 3), 1u);
  EXPECT_EQ(known({.workers = {1}}, 2), 12u);
  EXPECT_EQ(known({.group_size = 3}, 5), 4u);             // the group's row
  EXPECT_EQ(known({.scope = DelayScope::step}, 1), 12u);  // of a step one draw is asked for
  EXPECT_EQ(known({.scope = DelayScope::step}, 1, 9), 12u);
  const DelayReach in_bursts{.group_size = 2, .bursts = BurstLengths{3, 5}, .cluster_size = 4};
  const auto marker = scoped_delay(constant_delay(1), in_bursts);
  int on_steps = 0;
  for (int step = 0; step < 50; ++step) {
    std::vector<double> is_on(1);
    marker->add({.seed = 7, .worker = Rank{3}, .step = Step{step}}, 0, is_on);
    EXPECT_EQ(known(in_bursts, 3, 0, step), is_on[0] > 0 ? 4u : 12u) << step;
    on_steps += is_on[0] > 0;
  }
  EXPECT_GT(on_steps, 0);
  EXPECT_LT(on_steps, 50);
  EXPECT_FALSE(scoped_delay(exponential_delay(1), {.group_size = 3})->can_run_out());
}

// A delay whose law is not the same for all, as that of a trace.
class SlowerByNumber final : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& sum_s : added_s) sum_s += stream.worker.value;
  }
  double mean_s() const override { return 1; }
  StepLaw step_law(const RandomStream& stream, int micro_batches) const override {
    return {1.0 * micro_batches * stream.worker.value, 0};
  }
};

TEST(ScopedDelay, OfAGroupHasTheLawOfTheGroupsNumber) {
  const auto racks = scoped_delay(std::make_shared<SlowerByNumber>(), {.group_size = 3});
  const auto per_step = scoped_delay(std::make_shared<SlowerByNumber>(), {.scope = DelayScope::step, .group_size = 3});
  for (int worker = 0; worker < 9; ++worker) {
    EXPECT_THAT(added(*racks, worker, 5), Each(worker / 3));
    EXPECT_EQ(racks->step_law({.worker = Rank{worker}}, 4).mean_s, 4 * (worker / 3));
    EXPECT_EQ(per_step->step_law({.worker = Rank{worker}}, 4).mean_s, worker / 3);
  }
}

TEST(ScopedDelay, ConcernsOnlyWorkersThatThereAre) {
  const auto faults = [](const std::string& workers, int of_cluster) {
    SettingsDocument document(parse_toml("kind = \"constant\"\nvalue = 1\nworkers = " + workers, "delays.toml"));
    Settings settings = document.root();
    static_cast<void>(make_delay(settings, {0.010, of_cluster}));
    return document.check().report();
  };
  EXPECT_EQ(faults("[0, 7]", 8), "");
  EXPECT_THAT(faults("[0, 8]", 8), testing::HasSubstr("workers = 8; each element must be an integer from 0 to 7"));
  EXPECT_EQ(faults("[8]", 0), "");  // of how many, nobody knows
}

TEST(ScopedDelay, KeysOfAnEntryMakeItsReach) {
  const auto read = [](const std::string& keys) {
    SettingsDocument document(parse_toml("kind = \"exponential\"\nmean = 2\n" + keys, "delays.toml"));
    Settings settings = document.root();
    auto delay = make_delay(settings, {0.010, 8});
    EXPECT_EQ(document.check().report(), "") << keys;
    return std::pair{delay, write_toml(document.resolved())};
  };
  const auto plain = exponential_delay(2);
  const auto [step, step_text] = read("scope = \"step\"");
  EXPECT_EQ(added(*step, 1, 2), (Added{added(*plain, 1, 2)[0], 0, 0, 0}));
  EXPECT_THAT(step_text, testing::HasSubstr("scope = \"step\""));
  const auto [rack, rack_text] = read("group_size = 4\nworkers = [4, 5, 6, 7]");
  EXPECT_EQ(added(*rack, 6, 2), added(*plain, 1, 2));
  EXPECT_THAT(added(*rack, 3, 2), Each(0.0));
  const auto [bursty, bursty_text] = read("bursts = { mean_on_steps = 2, mean_off_steps = 6 }");
  EXPECT_DOUBLE_EQ(bursty->mean_s(), 0.5);
  // What is not written stays unwritten: the resolved configuration, and so the run, is that of before.
  const auto [unscoped, text] = read("");
  EXPECT_EQ(added(*unscoped, 6, 2), added(*plain, 6, 2));
  EXPECT_EQ(text, "kind = \"exponential\"\nunit = \"seconds\"\nmean = 2.0\n");
}

}  // namespace
}  // namespace syncopate
