// Gradients that remain of a stopped backward pass, compared with gradients of whole micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/layered_pull_objective.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/training.hpp"

namespace syncopate {
namespace {

TEST(PartialBackward, AreThoseWhoseElementsTheShareOfTheBackwardPassHasComeThrough) {
  const BackwardOrder order{LayeredPullObjective()};
  EXPECT_EQ(order.done_by(0), std::nullopt);
  EXPECT_EQ(order.done_by(0.124), std::nullopt);
  using Done = std::optional<PartialBackward>;
  EXPECT_EQ(order.done_by(0.125), (Done{{.weights_from = 6, .others_from = 7}}));
  EXPECT_EQ(order.done_by(0.624), (Done{{.weights_from = 6, .others_from = 7}}));
  EXPECT_EQ(order.done_by(0.625), (Done{{.weights_from = 2, .others_from = 7}}));
  EXPECT_EQ(order.done_by(0.75), (Done{{.weights_from = 2, .others_from = 6}}));
  EXPECT_EQ(order.done_by(0.999), (Done{{.weights_from = 2, .others_from = 6}}));
}

TEST(PartialBackward, OfAModelWithoutTensorsOfItsOwnAreItsTwoRanges) {
  const BackwardOrder order{PullObjective(8, 6)};
  EXPECT_EQ(order.done_by(0.2), std::nullopt);
  EXPECT_EQ(order.done_by(0.25), (std::optional<PartialBackward>{{.weights_from = 6, .others_from = 6}}));
  EXPECT_EQ(BackwardOrder(PullObjective(8, 8)).done_by(0.999), std::nullopt);  // its only tensor is done at the end
}

TEST(PartialBackward, OfANetworkComeInTheOrderOfItsLayers) {
  const Network network = mlp_network({.channels = 3}, 2, {4});  // two layers: 12 weights and 4 biases, 8 and 2
  std::vector<std::size_t> places;
  for (const ParameterTensor& tensor : network.tensors()) places.push_back(tensor.place);
  EXPECT_EQ(places, (std::vector<std::size_t>{0, 2, 1, 3}));
}

// The gradient has one segment, or several whose borders are anywhere.
TEST(PartialBackward, LeaveTheirSegmentsAlone) {
  const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<std::vector<std::size_t>> borders = {{0, 8}, {0, 4, 8}, {0, 2, 6, 7, 8}};
  for (const auto& border : borders) {
    std::vector<GradientSegment> segments;
    for (std::size_t i = 0; i + 1 < border.size(); ++i)
      segments.push_back({border[i], border[i + 1] - border[i], values.data() + border[i], nullptr});
    leave_layers(segments, {.weights_from = 3, .others_from = 7}, 6);
    std::vector<float> left;
    for (const GradientSegment& segment : segments)
      for (std::size_t i = 0; i < segment.size; ++i) {
        EXPECT_EQ(segment.data[i], static_cast<float>(segment.offset + i));
        left.push_back(segment.data[i]);
      }
    EXPECT_EQ(left, (std::vector<float>{3, 4, 5, 7}));
  }
}

// The gradient of a micro-batch in the flat order, from modules of torch::nn in double precision. A backward pass
// visits the module's parameters from the last to the first. Those that it does not finish within the given share have
// zeros.
std::vector<double> reference_gradient(const reference::Case& model, const std::vector<float>& parameters,
                                       const MicroBatch& micro_batch, double share) {
  torch::nn::Sequential module = model.module;
  reference::set_parameters(module, parameters);
  module->train();
  module->zero_grad();
  auto samples = reference::samples_of(micro_batch);
  torch::nn::functional::cross_entropy(module->forward(reference::input_tensor(samples)),
                                       reference::label_tensor(samples))
      .backward();
  auto all = module->parameters();
  double total = 0, through = 0;
  for (const auto& parameter : all) total += static_cast<double>(parameter.numel());
  for (auto parameter = all.rbegin(); parameter != all.rend(); ++parameter) {
    through += static_cast<double>(parameter->numel());
    if (through / total > share) parameter->mutable_grad().zero_();
  }
  std::vector<double> flat;
  for (const auto& parameter : reference::flat_order(module)) {
    const auto gradient = parameter.grad().contiguous();
    flat.insert(flat.end(), gradient.data_ptr<double>(), gradient.data_ptr<double>() + gradient.numel());
  }
  return flat;
}

const MicroBatch whole{Rank{0}, 0, 1}, begun{Rank{1}, 0, 2};

std::shared_ptr<const Objective> objective_of(const reference::Case& model) {
  return std::make_shared<TorchObjective>(model.network, reference::images(), reference::sampling, 64);
}

// The sum of the gradients of a whole micro-batch and of a cut one.
TEST(PartialBackward, AreWhatIsLeftOfAMicroBatchsGradient) {
  for (const reference::Case& model : reference::cases()) {
    Executor executor(2);
    Training training(objective_of(model), make_sgd({}), {}, executor);
    const ModelStatePtr at = training.initial_state();
    const auto parameters = training.values(at);
    const auto of_whole = reference_gradient(model, parameters, whole, 1);
    std::set<std::size_t> zeros;
    for (const double share : {0.005, 0.03, 0.06, 0.08, 0.2, 0.5, 0.99}) {
      SCOPED_TRACE(testing::Message() << model.name << ", " << share);
      const auto of_begun = reference_gradient(model, parameters, begun, share);
      zeros.insert(static_cast<std::size_t>(std::ranges::count(of_begun, 0.0)));
      Gradient sum(at, whole, Duration{1});
      if (const auto cut = training.partial_gradient(at, begun, share)) sum += *cut;
      EXPECT_EQ(sum.micro_batches(), 1);
      const auto found = training.values(sum);
      ASSERT_EQ(found.size(), of_begun.size());
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], of_whole[i] + of_begun[i], 2e-5) << i;
    }
    EXPECT_GE(zeros.size(), 3u) << "too few cuts to tell apart";
  }
}

TEST(PartialBackward, ThatAreTheWholeSumAreZeroElsewhere) {
  const reference::Case model = reference::cases().front();
  Executor executor(2);
  Training training(objective_of(model), make_sgd({}), {}, executor);
  const ModelStatePtr at = training.initial_state();
  const auto expected = reference_gradient(model, training.values(at), begun, 0.05);
  const auto found = training.values(*training.partial_gradient(at, begun, 0.05));
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 2e-5);
    if (expected[i] == 0) {
      EXPECT_EQ(found[i], 0.0f);
    }
  }
}

// A cut micro-batch counts neither for the loss nor for the normalisation statistics.
TEST(PartialBackward, LeaveLossesAndStatisticsAsTheyAreWithoutThem) {
  const reference::Case model = reference::cases().back();
  Executor executor(2);
  Training training(objective_of(model), make_sgd({}), {}, executor);
  const ModelStatePtr at = training.initial_state();
  ASSERT_FALSE(training.buffer_values(at).empty());
  const Gradient alone(at, whole, Duration{1});
  const Gradient both = Gradient(alone) += *training.partial_gradient(at, begun, 0.9);
  EXPECT_EQ(training.loss(both), training.loss(alone));
  EXPECT_TRUE(std::isnan(training.loss(*training.partial_gradient(at, begun, 0.9))));
  const auto statistics = [&](const Gradient& gradient) {
    return training.buffer_values(training.descend(at, gradient, 0.1));
  };
  EXPECT_EQ(statistics(both), statistics(alone));
  EXPECT_EQ(statistics(*training.partial_gradient(at, begun, 0.9)), training.buffer_values(at));
}

TEST(PartialBackward, AreOfNoMicroBatchThatIsKept) {
  std::vector<MicroBatch> kept;
  const auto note = [&](const MicroBatch& micro_batch) { kept.push_back(micro_batch); };
  Engine engine(std::make_shared<LayeredPullObjective>(), make_sgd({}), {.on_kept = note});
  const ModelStatePtr at = engine.training.initial_state();
  const Gradient sum = Gradient(at, whole, Duration{1}) += *engine.training.partial_gradient(at, begun, 0.9);
  EXPECT_EQ(engine.training.travelling(sum), std::vector{whole});
  EXPECT_EQ(engine.training.travelling(engine.training.share(sum)), std::vector{whole});
  engine.training.descend(at, sum, 0.1);
  EXPECT_EQ(kept, std::vector{whole});
}

// The sum has already been evaluated, as on an MPI rank.
TEST(PartialBackward, OfASumThatHasBeenEvaluatedAreThoseOfThePromise) {
  const reference::Case model = reference::cases().back();
  Executor executor(2);
  const auto objective = objective_of(model);
  Training training(objective, make_sgd({}), {}, executor);
  const ModelStatePtr at = training.initial_state();
  const auto evaluated = [&] {
    auto sum = fix_sum(Gradient(at, begun, {}), *objective).sum;
    for (auto& chunk : sum->chunks) evaluate_chunk(chunk, std::exchange(chunk.at, nullptr), *objective);
    sum->submitted = true;
    return sum;
  };
  const auto cut = training.partial_gradient(evaluated(), 0.3);
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->cut());
  EXPECT_EQ(training.values(*cut), training.values(*training.partial_gradient(at, begun, 0.3)));
  EXPECT_EQ(training.contributions(*cut), training.contributions(*training.partial_gradient(at, begun, 0.3)));
  EXPECT_FALSE(training.partial_gradient(evaluated(), 0.001));
  EXPECT_FALSE(training.partial_gradient(nullptr, 0.3));
}

// Flat order of the tensors: matrices 1 and 2, biases 1 and 2.
TEST(PartialBackward, EachTensorsMeanIsOverTheMicroBatchesThatHaveReachedIt) {
  const auto objective = std::make_shared<LayeredPullObjective>();
  Engine engine(objective, make_sgd({}));
  const ModelStatePtr at = engine.training.initial_state();
  Gradient sum = engine.promise(at, 0);
  sum += engine.promise(at, 1);
  sum += *engine.training.partial_gradient(at, {Rank{2}, 0, 0}, 0.7);
  sum += *engine.training.partial_gradient(at, {Rank{3}, 0, 0}, 0.2);
  sum += *engine.training.partial_gradient(at, {Rank{4}, 0, 0}, 0.3);
  const auto counts = engine.training.contributions(sum);
  EXPECT_EQ(counts, (std::vector<double>{2, 3, 2, 5}));
  const Gradient shared = engine.training.share(sum);
  EXPECT_EQ(engine.training.contributions(shared), counts);
  engine.training.weigh_tensors(shared, counts);
  ASSERT_EQ(shared.micro_batches(), 2);
  const auto mean = engine.training.values(shared / 2);
  const std::vector<int> reached = {2, 2, 3, 3, 3, 3, 2, 5};  // number of workers that have reached element i
  for (std::size_t i = 0; i < 8; ++i) {
    double expected = 0;
    for (int worker = 0; worker < reached[i]; ++worker)
      expected += (1.0 - PullObjective::target({Rank{worker}, 0, 0}, i)) / reached[i];
    EXPECT_NEAR(mean[i], expected, 1e-6) << i;
  }
  EXPECT_EQ(objective->calls, 3) << "the two with as much left are not evaluated together";
}

TEST(PartialBackward, ATensorThatNobodyHasReachedHasNoGradient) {
  Engine engine(std::make_shared<LayeredPullObjective>(), make_sgd({}));
  const ModelStatePtr at = engine.training.initial_state();
  const Gradient shared = engine.training.share(*engine.training.partial_gradient(at, {Rank{3}, 0, 0}, 0.2));
  engine.training.weigh_tensors(shared, engine.training.contributions(shared));
  const float expected = 1 - PullObjective::target({Rank{3}, 0, 0}, 7);
  EXPECT_EQ(engine.training.values(shared), (std::vector<float>{0, 0, 0, 0, 0, 0, 0, expected}));
}

TEST(PartialBackward, AreOfNoUseWithoutAModel) {
  Executor executor(0);
  const Training training(nullptr, nullptr, {}, executor);
  EXPECT_FALSE(training.partial_gradient(nullptr, begun, 0.9));
  EXPECT_EQ(training.contributions(Gradient(nullptr, begun, 3, {})), std::vector<double>{3});
}

}  // namespace
}  // namespace syncopate
