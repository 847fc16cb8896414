// Fits to the times of micro-batches of sequences. The times are invented and read from a clock that only gradients
// move.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/execution/cost.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/base/random.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {
namespace {

// Lengths in the micro-batches of four workers. Each has eight sequences, of 3 to 40 tokens or all of one length.
class DrawnLengths : public BatchLengths {
 public:
  explicit DrawnLengths(std::int32_t all = 0) : all_(all) {}
  void append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const override {
    std::vector<double> uniform(8);
    RandomStream{.seed = 5, .worker = micro_batch.worker, .step = micro_batch.step.value()}.fill_uniform(0, uniform);
    for (const double u : uniform) lengths.push_back(all_ > 0 ? all_ : 3 + static_cast<std::int32_t>(38 * u * u));
  }
  int workers() const override { return 4; }
  int micro_batches() const override { return 2; }
  std::int64_t steps_per_epoch() const override { return 10; }
  bool differs_by_worker() const override { return false; }
  std::int64_t fewest_samples() const override { return 8; }
  std::int32_t shortest() const override { return 3; }

 private:
  std::int32_t all_;
};

struct Meter : PullObjective {
  using Time = std::function<double(const std::vector<std::int32_t>& lengths, int visit)>;
  Meter(std::shared_ptr<const BatchLengths> lengths, Time time)
      : work{.experiment = "e", .key = "k", .load = {}, .lengths = std::move(lengths)}, time(std::move(time)) {}

  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    EXPECT_EQ(micro_batches.size(), 1u);
    std::vector<std::int32_t> lengths;
    work.lengths->append(micro_batches[0], lengths);
    EXPECT_GE(micro_batches[0].step.value(), calibration_epoch * work.lengths->steps_per_epoch());
    now_s += time(lengths, visits[micro_batches[0]]++);
    return {};
  }
  LengthFit fit() const {
    return measure_by_lengths(*this, work, 1, [this] { return now_s; });
  }

  MicroBatchWork work;
  Time time;
  mutable double now_s = 100;
  mutable std::map<MicroBatch, int> visits;
};

TEST(LengthMeter, FindsTheCostsThatTimesAreMadeOf) {
  const ContentCost cost{.base_s = 2e-3, .per_token_s = 3e-5, .per_squared_length_s = 4e-7};
  const Meter meter(std::make_shared<DrawnLengths>(),
                    [&](const auto& lengths, int) { return seconds_of(cost, lengths); });
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.base_s, cost.base_s, 1e-9);
  EXPECT_NEAR(fit.cost.per_token_s, cost.per_token_s, 1e-11);
  EXPECT_NEAR(fit.cost.per_squared_length_s, cost.per_squared_length_s, 1e-13);
  EXPECT_EQ(fit.cost.per_padded_token_s, 0);
  EXPECT_NEAR(fit.r_squared, 1, 1e-9);
  EXPECT_LT(fit.largest_residual_s, 1e-9);
  EXPECT_EQ(fit.points, 24);
}

TEST(LengthMeter, TellsPaddedTokensFromTokens) {
  const ContentCost cost{.base_s = 1e-3, .per_padded_token_s = 2e-5};
  Meter meter(std::make_shared<DrawnLengths>(), [&](const auto& lengths, int) { return seconds_of(cost, lengths); });
  meter.work.pads = true;
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.per_padded_token_s, cost.per_padded_token_s, 1e-11);
  EXPECT_EQ(fit.cost.per_token_s, 0);
}

// If all sequences are padded, the fit gives a cost to the padded tokens and none to a sequence's own tokens, also with
// noise.
TEST(LengthMeter, FindsNoCostOfOwnTokensWhereAllArePadded) {
  int calls = 0;
  Meter meter(std::make_shared<DrawnLengths>(), [&](const std::vector<std::int32_t>& lengths, int) {
    const double noise = 1e-5 * (++calls * 37 % 11 - 5);
    return seconds_of({.base_s = 1e-3, .per_token_s = 2e-5, .per_padded_token_s = 1e-6}, lengths) + noise;
  });
  EXPECT_GT(meter.fit().cost.per_token_s, 0);
  meter.work.pads = true;
  meter.visits.clear();
  const LengthFit fit = meter.fit();
  EXPECT_EQ(fit.cost.per_token_s, 0);
  EXPECT_GT(fit.cost.per_padded_token_s, 0);
}

// The last layer of a language model computes only the tokens to predict, which exclude padding.
TEST(LengthMeter, FindsTheCostOfOwnTokensWherePaddingIsAskedForNothing) {
  const ContentCost cost{.base_s = 1e-3, .per_token_s = 2e-5, .per_padded_token_s = 1e-5};
  Meter meter(std::make_shared<DrawnLengths>(), [&](const auto& lengths, int) { return seconds_of(cost, lengths); });
  meter.work.pads = true;
  meter.work.asks_for_tokens = true;
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.per_token_s, cost.per_token_s, 1e-11);
  EXPECT_NEAR(fit.cost.per_padded_token_s, cost.per_padded_token_s, 1e-11);
}

// The first two visits to a micro-batch are slow, because libraries initialise themselves. So is every seventh later
// visit.
TEST(LengthMeter, IsNotMisledByRareDisturbancesNorByTheFirstGradients) {
  const ContentCost cost{.base_s = 2e-3, .per_token_s = 3e-5};
  int calls = 0;
  const Meter meter(std::make_shared<DrawnLengths>(), [&](const auto& lengths, int visit) {
    const bool is_disturbed = visit < 2 || ++calls % 7 == 0;
    return seconds_of(cost, lengths) * (is_disturbed ? 10 : 1);
  });
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.base_s, cost.base_s, 1e-9);
  EXPECT_NEAR(fit.cost.per_token_s, cost.per_token_s, 1e-11);
}

// The line has values of about 7 to 15 ms. Half of the times are 1 ms above it, and the others 1 ms below. So the line
// explains all of their variance except 1 ms^2.
TEST(LengthMeter, SaysHowWellTheLineFits) {
  const Meter meter(std::make_shared<DrawnLengths>(), [&](const std::vector<std::int32_t>& lengths, int) {
    double tokens = 0;
    for (const std::int32_t length : lengths) tokens += length;
    return 5e-3 + 5e-5 * tokens + (static_cast<int>(tokens) % 2 == 0 ? 1e-3 : -1e-3);
  });
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.typical_residual_s, 1e-3, 2e-4);
  EXPECT_GT(fit.largest_residual_s, 0.9e-3);
  EXPECT_GT(fit.r_squared, 0.6);
  EXPECT_LT(fit.r_squared, 0.95);
}

TEST(LengthMeter, TimesMicroBatchesFromTheFewestTokensToTheMost) {
  std::set<double> timed;
  const auto lengths = std::make_shared<DrawnLengths>();
  const auto tokens_of = [](const std::vector<std::int32_t>& one) { return seconds_of({.per_token_s = 1}, one); };
  Meter(lengths, [&](const auto& one, int) { return timed.insert(tokens_of(one)), 1e-3; }).fit();
  std::set<double> all;
  for (int worker = 0; worker < 4; ++worker)
    for (int step = 0; step < 100; ++step) {
      std::vector<std::int32_t> one;
      lengths->append({Rank{worker}, step, 0}, one);
      all.insert(tokens_of(one));
    }
  EXPECT_GE(timed.size(), 20u);
  EXPECT_LT(*timed.begin(), *std::next(all.begin(), 10));
  EXPECT_GT(*timed.rbegin(), *std::prev(all.end(), 10));
}

// If all sequences have the same length, the cost of a token is unknown. The whole time becomes base_s, which is right
// for sequences of this length.
TEST(LengthMeter, ClaimsNoCostPerTokenWhereAllLengthsAreEqual) {
  const Meter meter(std::make_shared<DrawnLengths>(12),
                    [](const auto&, int visit) { return visit % 2 ? 4e-3 : 4.2e-3; });
  const LengthFit fit = meter.fit();
  EXPECT_GE(fit.cost.base_s, 4e-3);
  EXPECT_LE(fit.cost.base_s, 4.2e-3);
  EXPECT_EQ(fit.cost.per_token_s, 0);
  EXPECT_EQ(fit.cost.per_padded_token_s, 0);
  EXPECT_EQ(fit.cost.per_squared_length_s, 0);
}

TEST(LengthMeter, GivesUpRoundsWhereGradientsAreSlow) {
  const Meter meter(std::make_shared<DrawnLengths>(), [](const auto&, int) { return 0.2; });
  EXPECT_NEAR(meter.fit().cost.base_s, 0.2, 1e-6);
  EXPECT_LT(meter.now_s, 100 + 35);
}

// A measurement times the computation of gradients without their release. It holds the gradients of a step, or fewer
// if they are large. Here the clock advances only when a gradient is computed or released.

constexpr double gradient_s = 1e-3, release_s = 5e-3;

class CountedGradients : public PullObjective {
 public:
  explicit CountedGradients(std::size_t floats = 4) : floats_(floats) {}

  std::size_t parameters() const override { return floats_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return {}; }

  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch>) const override {
    now_s = now_s + gradient_s;
    most_held = std::max<int>(most_held, ++held);
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = 0, .data = nullptr, .owner = released_later()});
    return result;
  }

  mutable std::atomic<int> held = 0, most_held = 0;
  mutable std::atomic<double> now_s = 100;

 private:
  std::shared_ptr<const void> released_later() const {
    return {this, [](const CountedGradients* self) {
              --self->held;
              self->now_s = self->now_s + release_s;
            }};
  }
  std::size_t floats_;
};

class OneLength : public BatchLengths {
 public:
  void append(const MicroBatch&, std::vector<std::int32_t>& lengths) const override { lengths.assign(4, 7); }
  int workers() const override { return 2; }
  int micro_batches() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 10; }
  bool differs_by_worker() const override { return false; }
  std::int64_t fewest_samples() const override { return 4; }
  std::int32_t shortest() const override { return 7; }
};

MicroBatchWork work_of(int micro_batches) {
  return {.experiment = "e",
          .key = "k",
          .load = {},
          .micro_batches = micro_batches,
          .lengths = std::make_shared<OneLength>()};
}

TEST(MicroBatchTimer, TimesTheGradientAndNoReleaseOfMemory) {
  for (const int micro_batches : {1, 4, 24}) {
    const CountedGradients objective;
    const auto now_s = [&] { return objective.now_s.load(); };
    EXPECT_NEAR(measure_micro_batch_s(objective, work_of(micro_batches), 1, now_s), gradient_s, 1e-9);
    EXPECT_NEAR(measure_by_lengths(objective, work_of(micro_batches), 1, now_s).cost.base_s, gradient_s, 1e-9);
  }
}

TEST(MicroBatchTimer, HoldsTheGradientsOfAStepButOfLargeOnesNoMoreThanCachesAre) {
  constexpr std::size_t mebibytes = 1 << 20, floats_of_mebibyte = mebibytes / sizeof(float);
  struct Case {
    std::size_t mebibytes_of_gradient;
    int micro_batches, held;
  };
  for (const auto& [size, micro_batches, held] :
       {Case{1, 5, 5}, {1, 60, 60}, {64, 3, 3}, {64, 60, 4}, {256, 60, 1}, {4000, 60, 1}}) {
    SCOPED_TRACE(size);
    const CountedGradients objective(size * floats_of_mebibyte);
    measure_micro_batch_s(objective, work_of(micro_batches), 1, [&] { return objective.now_s.load(); });
    EXPECT_EQ(objective.most_held, held);
    EXPECT_EQ(objective.held, 0);
    const CountedGradients beside(size * floats_of_mebibyte);
    measure_by_lengths(beside, work_of(micro_batches), 3, [&] { return beside.now_s.load(); });
    EXPECT_LE(beside.most_held, 3 * held);
  }
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Measures with 32 threads, of which only a few have room for their stacks.
int measure_without_room() {
  constexpr std::size_t gibibyte = std::size_t{1} << 30;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, gibibyte);
  pthread_setattr_default_np(&attributes);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min<rlim_t>(address_space() + 7 * gibibyte / 2, limit.rlim_max);
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
  try {
    measure_micro_batch_s(CountedGradients(), work_of(1), 32);
  } catch (const std::runtime_error& problem) {
    const std::string message = problem.what();
    return message.starts_with("needs 31 more threads to compute in parallel with the timed one, but only ") ? 0 : 2;
  }
  return 1;
}

TEST(MicroBatchTimer, ThreadsThatCannotBeStartedAreAnError) {
  const pid_t measurer = fork();
  if (measurer == 0) _exit(measure_without_room());
  int status = 0;
  waitpid(measurer, &status, 0);
  EXPECT_EQ(status, 0);
}

// The key of a micro-batch whose time is measured. It contains everything that determines the arithmetic, and nothing
// else, so that a measurement is reused exactly where it is valid.

struct MeasuredTime : ExperimentFile {
  // Returns the keys of all measurements that an experiment requests.
  std::set<std::string> keys(Overrides overrides) const {
    std::set<std::string> result;
    LoadOptions options;
    options.measure = [&](const MicroBatchWork& work) {
      result.insert(work.key);
      return MeasuredMicroBatch{.micro_batch_s = 0.01};
    };
    overrides.push_back("cluster.micro_batch_s=measured");
    load_experiment(file, overrides, options);
    return result;
  }
};

TEST_F(MeasuredTime, IsAnotherOneWhereTheArithmeticIs) {
  const auto usual = keys({});
  EXPECT_EQ(usual.size(), 1u);
  std::set<std::string> all = usual;
  std::size_t count = 1;
  for (const std::string change :
       {"training.micro_batch_size=16", "training.model=mlp", "datasets.gaussian-mixture.dimension=7"}) {
    all.merge(keys({change}));
    EXPECT_EQ(all.size(), ++count) << change;
  }
  all.merge(keys({"training.model=mlp", "models.mlp.hidden=[9]"}));
  EXPECT_EQ(all.size(), ++count) << "the width of the model";
}

TEST_F(MeasuredTime, IsThatOfBeforeWhereTheArithmeticIs) {
  for (const std::string change :
       {"seeds=[9]", "cluster.workers=2", "cluster.micro_batches=1", "network.latency_s=1", "budget.epochs=2",
        "training.learning_rate.peak=0.1", "models.mlp.hidden=[9]", "name=other"})
    EXPECT_EQ(keys({change}), keys({})) << change;
}

TEST_F(MeasuredTime, IsMeasuredForEachPointOfASweepOverIt) {
  EXPECT_EQ(keys({"sweep={'training.micro_batch_size'=[4,8,16]}"}).size(), 3u);
  EXPECT_EQ(keys({"sweep={'network.latency_s'=[0.1,0.2]}"}).size(), 1u);
}

}  // namespace
}  // namespace syncopate
