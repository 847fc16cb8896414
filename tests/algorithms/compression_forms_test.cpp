// Forms of compression in which papers and published code differ, on the simulated cluster.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_method.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

std::shared_ptr<const Objective> noise(std::size_t size, std::vector<ParameterTensor> tensors) {
  const auto listed = [size](const MicroBatch& at) {
    std::mt19937 engine(static_cast<unsigned>(1000 * at.worker.value + 10 * at.step.value() + at.index));
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(size);
    for (float& value : values) value = uniform(engine);
    return values;
  };
  return std::make_shared<ListedGradients>(size, listed, std::move(tensors));
}

// A file may ask for full rank with least_rate = 0, though the factors are larger than the matrix.
TEST(CompressionForms, OfFullRankIsDense) {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>(4, 6), {6, 4}, {5, 5}}) {
    const std::size_t size = rows * columns + 3;
    const SimulatedRun setup{
        .workers = 3,
        .micro_batches = 2,
        .momentum = 0.9,
        .budget = {.steps = 12},
        .objective = noise(size, {{"m", 0, rows * columns, 0, rows}, {"b", rows * columns, 3, 1}})};
    CompressionOptions options{.kind = Kind::power};
    options.rank = static_cast<int>(std::min(rows, columns));
    options.least_rate = 0;
    const auto dense = setup.run(SyncSgd()).parameters;
    for (const auto removed : {CompressionOptions::Removed::own, CompressionOptions::Removed::shared}) {
      options.removed = removed;
      const auto found = setup.run(compressed(options)).parameters;
      for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found[i], dense[i], 1e-5) << rows;
    }
  }
}

// At ratio 1 without masking, as an optimizer has it.
TEST(CompressionForms, NesterovsMomentumOfEverythingIsNesterovs) {
  CompressionOptions options{.kind = Kind::dgc};
  options.ratio = 1;
  options.momentum = 0.8;
  options.masking = false;
  options.nesterov = true;
  SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 15}};
  const auto found = setup.run(compressed(options)).parameters;
  setup.optimizer = make_sgd({.momentum = 0.8, .nesterov = true});
  const auto dense = setup.run(SyncSgd()).parameters;
  for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
}

// Each worker's mean over its micro-batches, of norms 5 and 1; so is one that is dropped and folded in.
TEST(CompressionForms, ClipsEachWorkersMeanBeforeItAccumulates) {
  const auto listed = [](const MicroBatch& at) {
    if (at.step > 0) return std::vector<float>{0, 0};
    const float more = at.index % 2 == 0 ? 1.5f : 0.5f;
    return at.worker == Rank{0} ? std::vector<float>{3 * more, 4 * more} : std::vector<float>{-more, 0};
  };
  CompressionOptions options{.kind = Kind::dgc};
  options.ratio = 1;
  options.momentum = 0;
  options.clip = 2;
  options.dropped = CompressionOptions::Dropped::folded;
  const SimulatedRun setup{.workers = 2,
                           .micro_batches = 2,
                           .rate = 1,
                           .budget = {.steps = 3},
                           .objective = std::make_shared<ListedGradients>(2, listed)};
  for (const auto& found : {setup.run(compressed(options)).parameters,
                            setup.run(compressed<RandomDrop>(options, 0.999, Step{0})).parameters}) {
    EXPECT_NEAR(found[0], -(3 * 2.0 / 5 - 1) / 2, 1e-6);
    EXPECT_NEAR(found[1], -(4 * 2.0 / 5) / 2, 1e-6);
  }
}

}  // namespace
}  // namespace syncopate
