// Compressed sums of gradients that share a pass, against such that have one each.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_method.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/apart_objective.hpp"
#include "tests/workers/random_images.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

std::vector<CompressionOptions> some_kinds() {
  std::vector<CompressionOptions> all;
  for (const Kind kind : {Kind::top_k, Kind::sign, Kind::scalecom, Kind::dgc, Kind::one_bit, Kind::power}) {
    CompressionOptions options{.kind = kind, .ratio = 0.25};
    if (kind == Kind::power) options.rank = 1;
    if (kind == Kind::dgc) options.momentum = 0.5;
    all.push_back(options);
  }
  all.push_back({.kind = Kind::sign, .pattern = CompressionOptions::Pattern::two_phase});
  return all;
}

constexpr SampleShape shape{.channels = 1, .height = 6, .width = 6};
constexpr std::int64_t classes = 4;
const SamplerOptions sampling{.samples = 200, .workers = 5, .micro_batches = 3, .micro_batch_size = 4, .seed = 9};

// With gradients apart, or without.
class MaybeApart : public TorchObjective {
 public:
  explicit MaybeApart(bool apart)
      : TorchObjective(mlp_network(shape, classes, {10}, 0.25), std::make_shared<RandomImages>(shape, classes, 200, 50),
                       sampling, 32),
        apart_(apart) {}
  bool has_gradients_apart() const override { return apart_ && TorchObjective::has_gradients_apart(); }

 private:
  bool apart_;
};

std::shared_ptr<const TorchObjective> network(bool apart = true) { return std::make_shared<MaybeApart>(apart); }

SimulatedRun run_of(std::shared_ptr<const Objective> objective) {
  SimulatedRun setup{.workers = 5, .micro_batches = 3, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  setup.objective = std::move(objective);
  return setup;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

TEST(CompressionTogether, OfExactGradientsIsThatOfSingleOnes) {
  for (const CompressionOptions& options : some_kinds()) {
    if (options.kind == Kind::power) continue;  // of matrices
    const auto together = std::make_shared<ApartObjective>(24, 24, 8);
    const auto single = std::make_shared<PullObjective>(24, 24, 8);
    for (const int threads : {0, 1, 3}) {
      SimulatedRun a = run_of(together), b = run_of(single);
      a.threads = b.threads = threads;
      a.micro_batches = b.micro_batches = 2;
      EXPECT_EQ(a.run(compressed(options)).parameters, b.run(compressed(options)).parameters)
          << static_cast<int>(options.kind);
      EXPECT_EQ(a.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters,
                b.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters);
    }
    EXPECT_FALSE(together->passes.empty());
  }
}

// Signs and places of values that differ by rounding may differ, after which so does all else: the first steps alone.
TEST(CompressionTogether, OfANetworkIsThatOfSinglePassesUpToRounding) {
  const auto objective = network();
  ASSERT_TRUE(objective->has_gradients_apart());
  for (const CompressionOptions& options : some_kinds()) {
    SCOPED_TRACE(static_cast<int>(options.kind));
    SimulatedRun together = run_of(objective), single = run_of(network(false));
    for (SimulatedRun* setup : {&together, &single}) setup->budget = {.steps = 3};
    const auto start = objective->initial_parameters(0);
    const auto expected = single.run(compressed(options)).parameters;
    EXPECT_LT(distance(together.run(compressed(options)).parameters, expected), 1e-4 * distance(expected, start));
    const auto dropped = [&](const SimulatedRun& setup) {
      return setup.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters;
    };
    const auto some = dropped(single);
    EXPECT_LT(distance(dropped(together), some), 1e-4 * distance(some, start));
  }
}

TEST(CompressionTogether, OfANetworkHasTheSameBitsOnAnyNumberOfThreads) {
  SimulatedRun setup = run_of(network());
  for (const CompressionOptions& options : some_kinds()) {
    std::vector<float> first;
    for (const int threads : {0, 1, 4}) {
      setup.threads = threads;
      const auto found = setup.run(compressed(options)).parameters;
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << static_cast<int>(options.kind);
    }
  }
}

// Workers that come in another order bring the same set.
TEST(CompressionTogether, DelaysDoNotChangeBits) {
  SimulatedRun setup = run_of(network());
  const auto first = setup.run(compressed(some_kinds().front())).parameters;
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector<double>{3, 0.5, 2, 0, 1})};
  EXPECT_EQ(setup.run(compressed(some_kinds().front())).parameters, first);
}

}  // namespace
}  // namespace syncopate
