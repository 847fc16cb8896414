// Methods whose workers send compressed gradients or differences to servers, on the simulated cluster: residuals,
// identities, recursions, times, bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/method/algorithm.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/stsyn.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/compressions.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

CompressionOptions of(std::string_view kind, double ratio = 0.01) {
  CompressionOptions options = compression(kind, Compresses::messages, ratio);
  options.error_feedback = kind != "qsgd";
  return options;
}

CompressionOptions returning(CompressionOptions options) {
  options.returns_rejected = true;
  return options;
}

SimulatedRun::Outcome compressed(const SimulatedRun& setup, Algorithm& method, const CompressionOptions& options) {
  method.compress(options);
  auto outcome = setup.run(method);
  method.compress(std::nullopt);
  return outcome;
}

// Methods as written in files, for 4 workers.
struct Written {
  std::string keys;
  bool rejects = false;  // the server rejects some gradients
};
std::vector<Written> all_written() {
  return {
      {"algorithm = \"async-sgd\""},
      {"algorithm = \"async-sgd\"\nmaximum_staleness = 2", true},
      {"algorithm = \"softsync\"\nsplitting = 2"},
      {"algorithm = \"k-async\"\ngradients = 2"},
      {"algorithm = \"k-batch-async\"\ngradients = 2"},
      {"algorithm = \"ringmaster\"\ndelay_threshold = 3", true},
      {"algorithm = \"throttle\"\ndivisor = 2"},
      {"algorithm = \"stale-synchronous\"\nslack = 1"},
      {"algorithm = \"bounded-delay\"\nmaximum_delay = 2"},
      {"algorithm = \"sliding-window\"\nmaximum_delay = 2"},
      {"algorithm = \"backup-workers\"\nbackups = 1", true},
      {"algorithm = \"backup-workers\"\nbackups = 1\nservers = 2", true},
      {"algorithm = \"backup-tokens\"\nbackups = 1", true},
      {"algorithm = \"backup-timeout\"\ntimeout_s = 2.5", true},
      {"algorithm = \"k-sync\"\ngradients = 2", true},
      {"algorithm = \"k-batch-sync\"\ngradients = 2", true},
      {"algorithm = \"mindflayer\"\nrule = \"clipping-rennala\"\ntrials = 3\nlimit_s = 2.5", true},
      {"algorithm = \"mindflayer\"\nlimit_s = 2.5\narrival_probability = 0.8", false},
      {"algorithm = \"dynamic-backup\"", true},
      {"algorithm = \"async-local-sgd\"\nlocal_steps = 2\nupdate = { name = \"nesterov\", rate = 0.7, momentum = "
       "0.5 }"},
      {"algorithm = \"async-local-sgd\"\nlocal_steps = 2\nmaximum_staleness = 2\nupdate = { name = \"plain\" }", true},
      {"algorithm = \"stsyn\"\nquorum = 2\nlocal_steps = 2"},
      {"algorithm = \"stsyn\"\nquorum = 3\nlocal_steps = 2\nleaves_out_most = true", true},
      {"algorithm = \"elastic-averaging\"\nexchange = \"asynchronous\"\nbeta = 0.8\nperiod = 2"},
      {"algorithm = \"decoupled-diloco\"\nanchor = \"base\"\nquorum = 2\nfragments = 2\nouter = { name = "
       "\"diloco\", rate = 0.7, momentum = 0.5 }",
       true},
      {"algorithm = \"decoupled-diloco\"\nanchor = \"base\"\nquorum = 3\nlate = \"count\"\nmerge = \"mean\"\nouter = { "
       "name = \"diloco\", rate = 0.7, momentum = 0.5 }"},
      {"algorithm = \"halos\"\nregions = 2\nlocal_steps = 2\nlocal_update = { name = \"plain\" }\nglobal_update = "
       "{ name = \"plain\" }\nmerge_every = 2\nmixing = 0.5"}};
}

// Workers have different speeds, so that some gradients are stale.
SimulatedRun unlike_workers() {
  return {.workers = 4,
          .micro_batches = 2,
          .network_s = 0.05,
          .rate = 0.02,
          .budget = {.steps = 8},
          .worker_factors = {1, 1.3, 1.9, 3.1}};
}

TEST(CompressedMessages, OfEverythingAreDense) {
  const SimulatedRun setup = unlike_workers();
  for (const Written& written : all_written()) {
    const auto reading = read_method(written.keys);
    ASSERT_EQ(reading.faults, "") << written.keys;
    const auto dense = setup.run(*reading.algorithm);
    for (const std::string_view kind : {"top-k", "random-k"}) {
      const auto found = compressed(setup, *reading.algorithm, of(kind, 1));
      EXPECT_LT(largest_difference(found.parameters, dense.parameters), 1e-4) << written.keys;
      EXPECT_EQ(found.totals.messages, dense.totals.messages) << written.keys;
      EXPECT_EQ(found.totals.staleness, dense.totals.staleness) << written.keys;
    }
  }
}

std::vector<float> golden_gradient(const MicroBatch& at) {
  return golden[static_cast<std::size_t>(at.worker.value)][static_cast<std::size_t>(at.step.value())];
}

// The server steps along the mean of both workers' packets. The difference of one local step is -rate x the gradient.
TEST(CompressedMessages, TopOneHasTheGoldenSteps) {
  BackupWorkers waiting(2);
  AsyncLocalOptions options{.rounds = {.local_steps = 1}, .grace = from_seconds(1e6)};
  options.update = make_buffered_update({.size = 2});
  AsyncLocalSgd local(options);
  std::vector<double> x(3);
  for (int steps = 1; steps <= 4; ++steps) {
    for (std::size_t i = 0; i < 3; ++i) x[i] -= 0.1 * golden_steps[static_cast<std::size_t>(steps - 1)][i];
    const SimulatedRun setup{
        .workers = 2, .budget = {.steps = steps}, .objective = std::make_shared<ListedGradients>(3, golden_gradient)};
    for (Algorithm* method : std::vector<Algorithm*>{&waiting, &local}) {
      const auto found = compressed(setup, *method, of("top-k")).parameters;
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], x[i], 1e-6) << steps;
    }
  }
}

// A gradient has the golden values for server 0 and twice these for server 1. Each server's slice has its own residual.
TEST(CompressedMessages, OfTwoServersHaveAResidualForEach) {
  const auto twice = [](const MicroBatch& at) {
    std::vector<float> values = golden_gradient(at);
    for (const float value : golden_gradient(at)) values.push_back(2 * value);
    return values;
  };
  BackupWorkers method(2, {.servers = 2});
  const SimulatedRun setup{
      .workers = 2, .budget = {.steps = 4}, .objective = std::make_shared<ListedGradients>(6, twice)};
  const auto found = compressed(setup, method, of("top-k")).parameters;
  ASSERT_EQ(found.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) {
    double x = 0;
    for (const auto& step : golden_steps) x -= 0.1 * step[i];
    EXPECT_NEAR(found[i], x, 1e-6);
    EXPECT_NEAR(found[3 + i], 2 * x, 1e-6);
  }
}

TEST(CompressedMessages, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .worker_factors = {1, 1.3, 1.9, 3.1}, .objective = noise_at_first(24, 6)};
  AsyncLocalOptions options{.rounds = {.local_steps = 2}};
  std::vector<std::pair<const char*, std::shared_ptr<Algorithm>>> methods = {
      {"async-sgd", std::make_shared<AsyncSgd>(AsyncSgd::Options{})},
      {"async-local-sgd", std::make_shared<AsyncLocalSgd>(options)},
      {"stsyn", std::make_shared<Stsyn>(StsynOptions{.quorum = 4, .local_steps = 2})},
      {"elastic-averaging", std::make_shared<ElasticAveraging>(ElasticOptions{
                                .exchange = ElasticOptions::Exchange::asynchronous, .alpha = 0.2, .period = 2})}};
  for (const auto& [name, method] : methods) {
    setup.budget = {.steps = 3000};
    const auto dense = setup.run(*method).parameters;
    for (const std::string_view kind : {"top-k", "random-k", "int8", "fp4"}) {
      setup.budget = {.steps = 8};
      const auto early = compressed(setup, *method, of(kind, 0.1)).parameters;
      setup.budget = {.steps = 3000};
      const auto late = compressed(setup, *method, of(kind, 0.1)).parameters;
      EXPECT_LT(largest_difference(late, dense), 2e-5) << name << " " << kind;
      EXPECT_GT(largest_difference(early, dense), 1e-6) << name << " " << kind;
    }
    CompressionOptions without = of("top-k", 0.1);
    without.error_feedback = false;
    EXPECT_GT(largest_difference(compressed(setup, *method, without).parameters, dense), 1e-3) << name;
  }
}

// Worker 0 takes the first two steps, along zeros, and leaves. Worker 1's first gradient then arrives too late. Its
// later gradients are zeros, so their packets carry values of its residual.
TEST(CompressedMessages, WhatAServerRejectsIsLostOrReturned) {
  const auto listed = [](const MicroBatch& at) {
    return at.worker == Rank{1} && at.step == 0 ? std::vector<float>{2, 1.5f} : std::vector<float>{0, 0};
  };
  const SimulatedRun setup{.workers = 2,
                           .budget = {.steps = 6},
                           .worker_factors = {1, 10},
                           .data_of = {Step{2}, std::nullopt},
                           .objective = std::make_shared<ListedGradients>(2, listed)};
  BackupWorkers method(1);
  EXPECT_EQ(setup.run(method).parameters, (std::vector<float>{0, 0}));
  const auto lost = compressed(setup, method, of("top-k", 0.5));
  EXPECT_FLOAT_EQ(lost.parameters[0], 0);
  EXPECT_FLOAT_EQ(lost.parameters[1], -0.1f * 1.5f);
  const auto returned = compressed(setup, method, returning(of("top-k", 0.5)));
  EXPECT_FLOAT_EQ(returned.parameters[0], -0.1f * 2);
  EXPECT_FLOAT_EQ(returned.parameters[1], -0.1f * 1.5f);
  EXPECT_EQ(returned.totals.dropped, lost.totals.dropped);
  EXPECT_EQ(returned.totals.messages, lost.totals.messages);
  // With `returned`, each model has 8 bytes more for the number of earlier packets. One model has another 8 for the
  // rejected packet.
  const std::int64_t models = (returned.totals.bytes.value() - lost.totals.bytes.value()) / 8 - 1;
  EXPECT_GT(models, 6);
  EXPECT_LE(models, returned.totals.messages);
}

// All sent values end in the model, even those of gradients that arrived too late.
TEST(CompressedMessages, NothingIsLostWhereAllIsReturned) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 6)};
  setup.delays = {exponential_delay(1.0)};
  setup.budget = {.steps = 400};
  std::vector<float> sum_of_all(24);
  for (int worker = 0; worker < 4; ++worker)
    for (int step = 0; step < 6; ++step)
      for (std::size_t i = 0; i < 24; ++i) sum_of_all[i] -= 0.1f * noise_of({Rank{worker}, Step{step}, 0}, i);
  // Asynchronous SGD divides the file's rate by its 4 workers; backup tokens step along the mean of 3 gradients.
  for (const auto& [keys, divisor] : {std::pair{"algorithm = \"async-sgd\"\nmaximum_staleness = 3", 4},
                                      {"algorithm = \"backup-tokens\"\nbackups = 1", 3}}) {
    const auto reading = read_method(keys);
    ASSERT_EQ(reading.faults, "");
    std::vector<float> expected = sum_of_all;
    for (float& value : expected) value /= static_cast<float>(divisor);
    const auto returned = compressed(setup, *reading.algorithm, returning(of("top-k", 0.25)));
    EXPECT_GT(std::accumulate(returned.totals.dropped.begin(), returned.totals.dropped.end(), std::int64_t{0}), 0);
    EXPECT_LT(largest_difference(returned.parameters, expected), 2e-5) << keys;
    EXPECT_GT(largest_difference(compressed(setup, *reading.algorithm, of("top-k", 0.25)).parameters, expected), 1e-3)
        << keys;
  }
}

// Worker 1 is down while it computes its second gradient, of zeros, and loses its state: its unsent values are lost.
TEST(CompressedMessages, ALostStateTakesItsResidualAlong) {
  const auto listed = [](const MicroBatch& at) {
    return at.step == 0 && at.worker == Rank{1} ? std::vector<float>{2, 1.5f} : std::vector<float>{0, 0};
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 6}, .objective = std::make_shared<ListedGradients>(2, listed)};
  AsyncSgd method({});
  const auto dense = setup.run(method).parameters;
  ASSERT_LT(dense[0], 0);
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(3), from_seconds(1)},
                                     .loses_state = loses_state}});
    for (const bool returns : {false, true}) {
      CompressionOptions options = of("top-k", 0.5);
      options.returns_rejected = returns;
      const auto found = compressed(setup, method, options).parameters;
      EXPECT_FLOAT_EQ(found[0], dense[0]);
      EXPECT_FLOAT_EQ(found[1], loses_state ? 0 : dense[1]);
    }
  }
}

TEST(CompressedMessages, ANotANumberReachesTheModel) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(8, 1.0f);
    if (at.worker == Rank{1} && at.step == 1) values[5] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  SimulatedRun setup{.workers = 2, .objective = std::make_shared<ListedGradients>(8, listed)};
  AsyncSgd method({});
  for (const std::string_view kind : {"top-k", "sign", "qsgd", "int8", "fp4"}) {
    const auto has_it = [&](int steps) {
      setup.budget = {.steps = steps};
      const auto found = compressed(setup, method, of(kind)).parameters;
      return std::any_of(found.begin(), found.end(), [](float value) { return std::isnan(value); });
    };
    EXPECT_FALSE(has_it(1));
    EXPECT_TRUE(has_it(4)) << kind;
  }
}

TEST(CompressedMessages, StatisticsAreTheDenseOnes) {
  struct WithStatistics : PullObjective {
    std::size_t buffers() const override { return 3; }
    std::vector<float> initial_buffers() const override { return {1, 1, 1}; }
    bool fuses_micro_batches() const override { return false; }
    PartialGradient gradient(const float* parameters, const float* buffers,
                             std::span<const MicroBatch> micro_batches) const override {
      PartialGradient result = PullObjective::gradient(parameters, buffers, micro_batches);
      result.buffers_sum.assign(3, 0);
      for (const MicroBatch& at : micro_batches)
        for (std::size_t i = 0; i < 3; ++i)
          result.buffers_sum[i] += 0.5f * buffers[i] + target(at, i) + static_cast<float>(at.step.value());
      return result;
    }
  };
  SimulatedRun setup = unlike_workers();
  setup.objective = std::make_shared<WithStatistics>();
  for (const Written& written : all_written()) {
    const auto reading = read_method(written.keys);
    const auto dense = setup.run(*reading.algorithm);
    ASSERT_EQ(dense.buffers.size(), 3u);
    const auto found = compressed(setup, *reading.algorithm, of("top-k", 1));
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(found.buffers[i], dense.buffers[i], 1e-4 * std::abs(dense.buffers[i])) << written.keys;
  }
}

// One worker has 10 values. Each step takes 1 s of computing, a packet of a value and its index (8 bytes) to the
// server, and a model of 40 bytes back. The last gradient is not answered.
TEST(CompressedMessages, TakeTheTimeOfTheirPackets) {
  const auto listed = [](const MicroBatch&) { return std::vector<float>(10, 1.0f); };
  const SimulatedRun setup{.workers = 1,
                           .network = make_ring_network(0.01, 1000),
                           .budget = {.steps = 5},
                           .objective = std::make_shared<ListedGradients>(10, listed)};
  AsyncSgd method({});
  const auto found = compressed(setup, method, of("top-k", 0.1));
  EXPECT_EQ(found.totals.bytes, Bytes{5 * (8 + 40)});
  EXPECT_NEAR(to_seconds(found.totals.end), 5 * (0.01 + 0.04 + 1 + 0.01 + 0.008), 1e-8);
  SimulatedRun time_only = setup;
  time_only.objective = nullptr;
  const auto of_time = compressed(time_only, method, of("top-k", 0.1));
  EXPECT_EQ(of_time.totals.messages, found.totals.messages);
}

std::string faults_of(const std::string& compression, const std::string& method, bool time_only = false) {
  return read_method(method + "\ncompression = " + compression, {.workers = 4, .time_only = time_only}).faults;
}

TEST(CompressedMessages, AreReadForMethodsWhoseServersTakeThem) {
  for (const Written& written : all_written()) {
    for (const char* compression :
         {"{ name = \"top-k\", ratio = 0.1 }", "{ name = \"random-k\", ratio = 0.1, error_feedback = false }",
          "{ name = \"sign\" }", "{ name = \"qsgd\" }", "{ name = \"int8\", error_feedback = true }",
          "{ name = \"fp4\", rounding = \"random\", error_feedback = true }"}) {
      const auto reading = read_method(written.keys + "\ncompression = " + compression);
      EXPECT_EQ(reading.faults, "") << written.keys << compression;
      EXPECT_TRUE(reading.algorithm->compression()->of_messages());
    }
    const std::string returned = faults_of("{ name = \"sign\", rejected = \"return\" }", written.keys);
    if (written.rejects)
      EXPECT_EQ(returned, "") << written.keys;
    else
      EXPECT_THAT(returned, HasSubstr("accepts every packet")) << written.keys;
    EXPECT_THAT(faults_of("{ name = \"powersgd\" }", written.keys), HasSubstr("all workers' first factors"));
    EXPECT_THAT(faults_of("{ name = \"scalecom\", ratio = 0.1 }", written.keys),
                HasSubstr("indices that one worker chooses"));
    EXPECT_THAT(faults_of("{ name = \"majority\" }", written.keys), HasSubstr("a majority needs all workers"));
    EXPECT_THAT(faults_of("{ name = \"dgc\", ratio = 0.1 }", written.keys), HasSubstr("test.toml:"));
    EXPECT_THAT(faults_of("{ name = \"sign\", exchange = \"two-phase\" }", written.keys), HasSubstr("exchange"));
    EXPECT_FALSE(read_method(written.keys).algorithm->compression());
    EXPECT_THAT(read_method(written.keys).resolved, testing::Not(HasSubstr("compression")));
  }
}

TEST(CompressedMessages, AreRefusedWithTheirPlace) {
  const std::string async = "algorithm = \"async-sgd\"";
  EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 0 }", async), HasSubstr("test.toml:2:"));
  EXPECT_THAT(
      faults_of("{ name = \"sign\", scope = \"tensor\" }", "algorithm = \"backup-workers\"\nbackups = 1\nservers = 2"),
      HasSubstr("each of the 2 slices of the model"));
  EXPECT_THAT(faults_of("{ name = \"sign\", scope = \"tensor\" }", async, true), HasSubstr("needs a model"));
  EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 0.1, warmup_steps = 3 }", async), HasSubstr("warmup_steps"));
  EXPECT_THAT(faults_of("{ name = \"qsgd\", rejected = \"return\" }", async + "\nmaximum_staleness = 2"),
              HasSubstr("rejected"));
  for (const auto& [method, reason] : std::initializer_list<std::pair<std::string, std::string>>{
           {"algorithm = \"gradient-coding\"\ncode = \"fractional\"\nstragglers = 1", "coded gradients must cancel"},
           {"algorithm = \"elastic-averaging\"\nbeta = 0.8\nperiod = 2", "with exchange = \"asynchronous\""},
           {"algorithm = \"decoupled-diloco\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }",
            "with anchor = \"base\""},
           {"algorithm = \"decentralized-sgd\"", "copies of each other's models"},
           {"algorithm = \"ad-psgd\"", "copies of each other's models"}})
    EXPECT_THAT(faults_of("{ name = \"sign\" }", method), HasSubstr(reason)) << method;
}

// Bytes and times of messages by formula, compared with runs of one worker, whose micro-batches take 1 s.
TEST(CompressedMessages, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 6;
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.25 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"int8\" }", "{ name = \"fp4\" }"}) {
    const auto reading = read_method(std::string("algorithm = \"async-local-sgd\"\nlocal_steps = 2\nupdate = { name = "
                                                 "\"plain\" }\ncompression = ") +
                                         compression,
                                     {.workers = 1});
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 1, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    const Bytes packet =
        exchanges_of(reading.algorithm->compression(), {}, Bytes{16}, 1).back().exchanges.front().packet;
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{
        .workers = 1, .parameter_bytes = Bytes{16}, .steps = steps, .learning_rate = rate, .packet = packet};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{steps / 2, outcome.totals.bytes})) << compression;
    const SampledTimes times;
    const PredictionInput prediction{.workers = 1,
                                     .times = times,
                                     .network = *network,
                                     .parameter_bytes = Bytes{16},
                                     .learning_rate = rate,
                                     .packet = packet};
    EXPECT_NEAR(prediction.message_s() + prediction.gradient_message_s(), to_seconds(outcome.totals.end) / 3 - 2, 1e-8)
        << compression;
  }
}

// A worker sends compressed slices of the model to one server in turn. Each slice has its own residual, and rejected
// values return to the residual of their slice.

using testing::FloatNear;
using testing::Pointwise;

// Worker 0 takes a step, sends one of two slices of its model, then the other, and continues from the first model. The
// server adds the received slices to its own model, except number `rejected`.
class TwoSlices : public Algorithm {
 public:
  explicit TwoSlices(Step rejected) : rejected_(rejected) {}

  void run(Worker& worker) const override {
    const ModelStatePtr first = worker.model();
    for (int turn = 0; worker.budget_left(BudgetView::server); ++turn) {
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

// The first gradient that each slice sends has a larger and a smaller value; all others are zeros.
TEST(CompressedSlices, OfOneServerAreToldApart) {
  const auto listed = [](const MicroBatch& at) {
    const auto turn = at.step.value();
    return turn < 2 ? std::vector<float>{3, 2, 30, 20} : std::vector<float>(4, 0.0f);
  };
  const SimulatedRun setup{
      .workers = 1, .rate = 1, .budget = {.steps = 8}, .objective = std::make_shared<ListedGradients>(4, listed)};
  const auto run = [&](Step rejected, bool returns) {
    CompressionOptions options = of("top-k", 0.5);
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
