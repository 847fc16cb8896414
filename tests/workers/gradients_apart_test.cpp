// Gradients of several lists of micro-batches out of one pass, against a pass for each list, and against modules of
// torch::nn in double precision.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/pull_objective.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using namespace reference;

// As methods have them that drop micro-batches: unequal numbers of several workers and steps.
const std::vector<std::vector<MicroBatch>> lists = {
    {{.worker = Rank{0}, .step = 0, .index = 0}, {.worker = Rank{0}, .step = 0, .index = 2}},
    {{.worker = Rank{1}, .step = 0, .index = 1}},
    {{.worker = Rank{1}, .step = 8, .index = 0},
     {.worker = Rank{1}, .step = 8, .index = 1},
     {.worker = Rank{1}, .step = 8, .index = 2}},
    {{.worker = Rank{0}, .step = 8, .index = 1}}};

std::vector<std::span<const MicroBatch>> spans() { return {lists.begin(), lists.end()}; }

struct Trained {
  const char* name;
  Network network;
  double label_smoothing = 0;
  double mixup = 0;
};

Network of_each_kind() {
  Network network(shape);
  network.linear(9).tanh().linear(8, {.bias = false}).silu().dropout(0.25).linear(7).gelu().linear(6);
  return network.linear(classes).lay_out();
}

std::vector<Trained> all_trained() {
  const auto mlp = [](double dropout) { return mlp_network(shape, classes, {7, 6}, dropout); };
  return {{"softmax regression", linear_network(shape, classes)},
          {"mlp", mlp(0)},
          {"mlp with dropout", mlp(0.5)},
          {"each kind of layer", of_each_kind()},
          {"smoothed labels", mlp(0.5), 0.2},
          {"mixed samples", mlp(0), 0, 0.4},
          {"both", mlp(0.5), 0.2, 0.4}};
}

TEST(GradientsApart, AreThoseOfAPassForEachList) {
  for (const auto& [name, network, label_smoothing, mixup] : all_trained()) {
    SCOPED_TRACE(name);
    const TorchObjective objective(network, images(), sampling, 32, label_smoothing, mixup);
    ASSERT_TRUE(objective.has_gradients_apart());
    auto theta = some_parameters(objective);
    std::vector<PartialGradient> expected;
    for (const auto& list : lists) expected.push_back(objective.gradient(theta.data(), nullptr, list));
    const auto apart = objective.gradients_apart(theta.data(), nullptr, spans());
    // What the pass has kept is its own.
    objective.gradient(theta.data(), nullptr, lists[2]);
    theta.assign(theta.size(), std::nanf(""));
    for (std::size_t list = lists.size(); list-- > 0;) {
      const PartialGradient one = apart->of(list);
      EXPECT_LT(relative_distance(flatten(one), flatten(expected[list])), 2e-6) << list;
      EXPECT_NEAR(one.loss_sum, expected[list].loss_sum, 1e-6 * expected[list].loss_sum) << list;
      EXPECT_EQ(apart->loss_sum(list), one.loss_sum) << list;
      EXPECT_TRUE(one.buffers_sum.empty());
      std::vector<float> added = some_parameters(objective), sum = added;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += flatten(expected[list])[i];
      apart->add_to(added.data(), list);
      EXPECT_LT(relative_distance(added, sum), 2e-6) << list;
    }
  }
}

TEST(GradientsApart, AgreeWithAModuleInDoublePrecision) {
  const TorchObjective objective(mlp_network(shape, classes, {7, 6}), images(), sampling, 32);
  const auto theta = some_parameters(objective);
  const auto apart = objective.gradients_apart(theta.data(), nullptr, spans());
  for (std::size_t list = 0; list < lists.size(); ++list) {
    auto module = torch_mlp();
    set_parameters(module, theta);
    double loss_sum = 0;
    for (const MicroBatch& micro_batch : lists[list]) {
      auto samples = samples_of(micro_batch);
      const auto loss =
          torch::nn::functional::cross_entropy(module->forward(input_tensor(samples)), label_tensor(samples));
      loss.backward();
      loss_sum += loss.item<double>();
    }
    std::vector<double> expected;
    for (const auto& parameter : flat_order(module)) {
      const auto values = parameter.grad().contiguous();
      expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
    }
    const PartialGradient one = apart->of(list);
    EXPECT_LT(relative_distance(flatten(one), expected), 2e-5);
    EXPECT_NEAR(one.loss_sum, loss_sum, 1e-5 * loss_sum);
  }
}

TEST(GradientsApart, AreOfNetworksOfLinearLayersAlone) {
  const std::vector<std::pair<std::string, Network>> others = {
      {"cnn", cnn_network(shape, classes, cnn_options)},
      {"batch norm", cnn_network(shape, classes, cnn_with_batch_norm)},
      {"layer norm", Network(shape).linear(6).layer_norm().linear(classes).lay_out()},
      {"tokens", Network(shape).patches(4).linear(6).mean_tokens().linear(classes).lay_out()}};
  for (const auto& [name, network] : others) {
    const TorchObjective objective(network, images(), sampling, 32);
    EXPECT_FALSE(objective.has_gradients_apart()) << name;
  }
  EXPECT_THROW(PullObjective().gradients_apart(nullptr, nullptr, spans()), std::logic_error);
}

}  // namespace
}  // namespace syncopate
