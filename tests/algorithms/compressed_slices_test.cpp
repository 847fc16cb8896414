// Compressed messages to one server of several slices of the model in turn: each has its residual, and what is rejected
// comes back to the slice that it was of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"

namespace syncopate {
namespace {

using testing::FloatNear;
using testing::Pointwise;

// Worker 0 takes a step and sends one of two slices of what it is, then the other, and goes on from the first model. The
// server adds what comes to its own model, except `rejected`, by number.
class TwoSlices : public Algorithm {
 public:
  explicit TwoSlices(Step rejected) : rejected_(rejected) {}

  void run(Worker& worker) const override {
    const ModelStatePtr first = worker.model();
    for (int turn = 0; worker.budget_left(Judged::by_server); ++turn) {
      worker.descend(worker.compute_step_gradient(Samples::in_turn));
      Message message =
          Message::of_difference(Step{turn}, worker.combine({{1, first}, {-1, worker.model()}}), {.micro_batches = 1});
      message.slice = {turn % 2, 2};
      worker.send(Rank{worker.size()}, std::move(message));
      if (!worker.receive({.from = Rank{worker.size()}})) return;
      worker.set_model(first);
    }
  }

  void serve(Server& server) const override {
    while (server.budget_left()) {
      const auto message = server.receive_until_all_left();
      if (!message) return;
      const bool is_accepted = server.accept(*message, {.is_needed = message->step != rejected_}).has_value();
      ModelStatePtr next = server.model();
      if (is_accepted)
        next = server.with_slice(next, server.combine({{1, next}, {-1, message->model}}, next), message->slice);
      server.descend(next, is_accepted ? 1 : 0);
      server.publish();
      server.send_model(message->from, message->slice, {7});
    }
  }

  Traits traits() const override {
    return {.servers = 1, .averaged_slices = 2, .sends_gradients = true, .rejects_gradients = true};
  }

 private:
  Step rejected_;
};

// The first gradient that each slice sends has a larger and a smaller value, all others are zeros.
TEST(CompressedSlices, OfOneServerAreToldApart) {
  const auto listed = [](const MicroBatch& at) {
    const auto turn = at.step.value();
    return turn < 2 ? std::vector<float>{3, 2, 30, 20} : std::vector<float>(4, 0.0f);
  };
  const SimulatedRun setup{
      .workers = 1, .rate = 1, .budget = {.steps = 8}, .objective = std::make_shared<ListedGradients>(4, listed)};
  const auto run = [&](Step rejected, bool returns) {
    CompressionOptions options{.kind = CompressionOptions::Kind::top_k, .of_messages = true, .ratio = 0.5};
    options.returns_rejected = returns;
    TwoSlices method(rejected);
    method.compress(options);
    return setup.run(method).parameters;
  };
  const auto nothing = Step{-1};
  EXPECT_THAT(run(nothing, false), Pointwise(FloatNear(1e-6f), {-3.0f, -2.0f, -30.0f, -20.0f}));
  EXPECT_THAT(run(Step{0}, false), Pointwise(FloatNear(1e-6f), {0.0f, -2.0f, -30.0f, -20.0f}));
  EXPECT_THAT(run(Step{1}, false), Pointwise(FloatNear(1e-6f), {-3.0f, -2.0f, 0.0f, -20.0f}));
  for (const Step rejected : {Step{0}, Step{1}})
    EXPECT_THAT(run(rejected, true), Pointwise(FloatNear(1e-6f), {-3.0f, -2.0f, -30.0f, -20.0f}));
}

}  // namespace
}  // namespace syncopate
