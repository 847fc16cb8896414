// The contract of every cluster, for any clock. One suite of tests runs on the simulated cluster, and under mpirun with
// several numbers of ranks on the MPI cluster. Inputs are chosen so that the right answer is a closed formula of rank
// and size. Under MPI each program runs in its own process, so it checks only what this process knows.
//
// Tests must pass while other programs use the cores. They only assume that a sleep ends no earlier than requested,
// that accounts add up, and that times booked in a call are between the clock's readings before and after it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/account_of.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/cluster/cluster.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {

// Component j of the gradient of worker w's micro-batch i of step s is (w + 1)(j + 1) + 8 s + i at all parameters. The
// micro-batch's normalisation buffers are (w + 1, 8 s + i). All these values are small integers, which are exact in
// float32.
class KnownObjective : public Objective {
 public:
  static constexpr std::size_t size = 5;

  static float component(const MicroBatch& m, std::size_t j) {
    return static_cast<float>((m.worker.value + 1) * static_cast<int>(j + 1) + 8 * m.step.value() + m.index);
  }
  static std::vector<float> gradient_of(const MicroBatch& m) {
    std::vector<float> values;
    for (std::size_t j = 0; j < size; ++j) values.push_back(component(m, j));
    return values;
  }

  std::size_t parameters() const override { return size; }
  std::size_t weights() const override { return size; }
  std::size_t buffers() const override { return 2; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return std::vector<float>(size, 100.0f); }
  std::vector<float> initial_buffers() const override { return {-1.0f, -2.0f}; }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<std::vector<float>>(size, 0.0f);
    PartialGradient result;
    result.buffers_sum = {0, 0};
    for (const MicroBatch& m : micro_batches) {
      for (std::size_t j = 0; j < size; ++j) (*values)[j] += component(m, j);
      result.buffers_sum[0] += static_cast<float>(m.worker.value + 1);
      result.buffers_sum[1] += static_cast<float>(8 * m.step.value() + m.index);
    }
    result.segments.push_back({.offset = 0, .size = size, .data = values->data(), .owner = values});
    return result;
  }
  std::int64_t chunk_samples() const override { return 64; }
  bool fuses_micro_batches() const override { return false; }
  std::int64_t samples_per_micro_batch() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float*, const float*, Split, std::int64_t, std::int64_t) const override { return {}; }
};

// With this delay one worker's micro-batches of one step never end.
class EndlessStep : public DelayProcess {
 public:
  EndlessStep(Rank worker, Step step) : worker_(worker), step_(step) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    if (stream.worker != worker_ || stream.step != step_) return;
    for (double& added : added_s) added = std::numeric_limits<double>::infinity();
  }
  double mean_s() const override { return std::numeric_limits<double>::infinity(); }

 private:
  Rank worker_;
  Step step_;
};

// With this delay the micro-batches of one step take an hour.
class LongStep : public DelayProcess {
 public:
  explicit LongStep(Step step) : step_(step) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& added : added_s) added += stream.step == step_ ? mean_s() : 0;
  }
  double mean_s() const override { return 3600; }

 private:
  Step step_;
};

// Adds i times `delay_s` to micro-batch i.
class DelayByIndex : public DelayProcess {
 public:
  explicit DelayByIndex(double delay_s) : delay_s_(delay_s) {}
  void add(const RandomStream&, std::uint32_t first, std::span<double> added_s) const override {
    for (std::size_t i = 0; i < added_s.size(); ++i) added_s[i] += delay_s_ * static_cast<double>(first + i);
  }
  double mean_s() const override { return delay_s_; }

 private:
  double delay_s_;
};

// Records the rows of steps.csv that it receives.
struct SeenRounds : RunObserver {
  std::vector<StepRow> rounds;
  void on_row(const StepRow& round) override { rounds.push_back(round); }
  void on_publish(const Publication&) override {}
};

// The cluster that a test needs.
struct ContractSetup {
  int workers = 1;
  Servers servers{};
  const ComputeTime& compute_time;
  Training& training;
  RunObserver* observer = nullptr;
  RunRecord* record = nullptr;
  const OutagePlan* outages = nullptr;
};

struct ClusterKind {
  std::string name;
  int participants = 1;  // MPI ranks, or simulated participants
  std::function<std::unique_ptr<Cluster>(const ContractSetup&)> make;
  bool every_program_is_here = true;  // false: each process runs one participant's program
  // An event may be later than expected by at most this time.
  Duration tolerance{};
  // The time that may pass between a reading of the clock and the start of the next call.
  Duration hesitation{};
  // The time from the last arrival at a collective to the time that its agreement states.
  Duration agreed_after{};

  friend std::ostream& operator<<(std::ostream& out, const ClusterKind& kind) { return out << kind.name; }
};

class ClusterContract : public testing::TestWithParam<ClusterKind> {
 protected:
  using Program = std::function<void(Cluster&, Rank)>;

  int participants() const { return GetParam().participants; }
  Duration tolerance() const { return GetParam().tolerance; }
  Duration hesitation() const { return GetParam().hesitation; }

  // Runs on `workers` workers, and on `servers` servers if `serve` is given. Micro-batches take `base_s`.
  RunTotals run(int workers, const Program& work, const Program& serve = nullptr, Servers servers = 1) {
    const ComputeTime compute_time(7, base_s, {}, delays);
    const auto cluster = GetParam().make({.workers = workers,
                                          .servers = serve ? servers : Servers(),
                                          .compute_time = compute_time,
                                          .training = is_time_only ? time_only : training,
                                          .observer = observer,
                                          .record = record,
                                          .outages = outages});
    Cluster::Program serve_here;
    if (serve) serve_here = [&](Rank rank) { serve(*cluster, rank); };
    return cluster->run([&](Rank rank) { work(*cluster, rank); }, serve_here);
  }

  // The sum of micro-batches 0 .. count-1 of this worker's step.
  Gradient gradient(Cluster& cluster, Rank self, int count, Step step = 0) {
    Gradient sum;
    for (int i = 0; i < count; ++i) sum += compute(cluster, self, {self, step, i}).value();
    return sum;
  }
  std::optional<Gradient> compute(Cluster& cluster, Rank self, const MicroBatch& micro_batch,
                                  const Deadline& deadline = {}) {
    return cluster.compute_gradient(self, training.initial_state(), micro_batch, micro_batch, deadline);
  }
  // Computes until `time`, without using the results.
  void idle_until(Cluster& cluster, Rank self, Time time) {
    while (cluster.now(self) < time) compute(cluster, self, {self, 0, 99}, Deadline(time));
  }
  std::vector<float> values_with_buffers(const Gradient& gradient) {
    std::vector<float> values(training.gradient_size(gradient.wide()));
    training.write_values(gradient, values.data());
    return values;
  }

  // This worker's state after one step from the initial state, along its micro-batch 0 of step 0.
  ModelStatePtr stepped(Cluster& cluster, Rank self) {
    return training.descend(training.initial_state(), gradient(cluster, self, 1), rate);
  }

  std::vector<float> buffers(const ModelStatePtr& state) {
    const auto span = state->buffers->value.span();
    return {span.begin(), span.end()};
  }
  std::vector<float> moment(const ModelStatePtr& state) {
    if (!state->moments[0].values) return std::vector<float>(KnownObjective::size, 0.0f);
    const auto span = state->moments[0].values->value.span();
    return {span.begin(), span.end()};
  }

  static Place here(SourceLine at = SourceLine::current()) { return {"contract", at}; }

  static constexpr double rate = 0.25;
  static constexpr std::int64_t payload = 4 * KnownObjective::size;
  double base_s = 1e-3;
  std::vector<std::shared_ptr<const DelayProcess>> delays;
  RunObserver* observer = nullptr;
  RunRecord* record = nullptr;
  const OutagePlan* outages = nullptr;
  bool is_time_only = false;  // runs without a model
  Executor executor{0};
  Training time_only{nullptr, nullptr, {}, executor};
  Training training{std::make_shared<KnownObjective>(), make_sgd({.momentum = 0.5}), {}, executor};
};

inline void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_THAT(found, testing::Pointwise(testing::FloatNear(1e-5f), expected));
}

}  // namespace syncopate

#include "tests/workers/cluster_contract_accounts.hpp"
#include "tests/workers/cluster_contract_bookings.hpp"
#include "tests/workers/cluster_contract_collectives.hpp"
#include "tests/workers/cluster_contract_messages.hpp"
#include "tests/workers/cluster_contract_partial.hpp"
#include "tests/workers/cluster_contract_partial_end.hpp"
#include "tests/workers/cluster_contract_records.hpp"
#include "tests/workers/cluster_contract_servers.hpp"
#include "tests/workers/cluster_contract_started.hpp"
#include "tests/workers/cluster_contract_sums.hpp"

// Must come after cluster_contract_records.hpp.
#include "tests/workers/cluster_contract_outages.hpp"
