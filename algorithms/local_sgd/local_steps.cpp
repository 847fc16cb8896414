#include "algorithms/local_sgd/local_steps.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "algorithms/synchronous/drop_threshold.hpp"

namespace syncopate {

namespace {

// A phase of training alone, which begins with this object.
class TrainingSteps final : public LocalSteps {
 public:
  TrainingSteps(Worker& worker, const LocalPhase& phase) : LocalSteps(worker), phase_(phase), begun_(worker.step()) {}

  bool take() override {
    Gradient mean = compute_step() / phase_.micro_batches.value_or(worker_.micro_batches());
    if (see_) see_(mean);
    worker_.descend(mean, {.micro_batches = phase_.micro_batches});
    return true;
  }

 private:
  Gradient compute_step() {
    if (!phase_.micro_batches && phase_.sampling == LocalPhase::Sampling::shards)
      return worker_.compute_step_gradient();
    Gradient sum;
    for (int m = 0; m < phase_.micro_batches.value_or(worker_.micro_batches()); ++m)
      sum += *worker_.compute_gradient(next_samples(), Deadline());
    return sum;
  }

  // With Sampling::shards a worker takes consecutive samples of its own shard, for any number of micro-batches per
  // step. With Sampling::own it takes all workers' shards of an epoch, interleaved. The numbers of these epochs are
  // beyond those of any training and differ between workers, so no two workers have the same order.
  MicroBatch next_samples() {
    constexpr std::int64_t first_own_epoch = std::int64_t{1} << 30;
    const std::int64_t number = begun_micro_batches_++, of_step = worker_.micro_batches();
    if (phase_.sampling == LocalPhase::Sampling::shards)
      return {worker_.rank(), begun_ + number / of_step, static_cast<int>(number % of_step)};
    const std::int64_t workers = worker_.size(), steps = phase_.steps_per_epoch.value();
    const std::int64_t of_epoch = workers * steps * of_step;
    const std::int64_t epoch = first_own_epoch + number / of_epoch * workers + worker_.rank().value;
    const std::int64_t place = number % of_epoch;
    const std::int64_t step = epoch * steps + place / workers / of_step - phase_.first_step.value() % steps;
    return {Rank{static_cast<int>(place % workers)}, Step{step}, static_cast<int>(place / workers % of_step)};
  }

  const LocalPhase& phase_;
  Step begun_;
  std::int64_t begun_micro_batches_ = 0;  // in this phase
};

// Returns the sum of the gradients of those micro-batches of one local step that end before the deadline.
Gradient compute_until(Worker& worker, Time deadline) {
  Gradient sum;
  for (int m = 0; m < worker.micro_batches(); ++m) {
    const auto gradient = worker.compute_gradient(deadline);
    if (!gradient) break;
    sum += *gradient;
  }
  return sum;
}

class DroppingSteps final : public LocalSteps {
 public:
  DroppingSteps(Worker& worker, const DropOptions& options) : LocalSteps(worker), options_(options) {}

  void begin_round() override {
    LocalSteps::begin_round();
    deadline_ = later(worker_.now(), options_.threshold);
  }

  bool take() override {
    if (options_.clock == DropOptions::Clock::step) deadline_ = later(worker_.now(), options_.threshold);
    const Gradient sum = compute_until(worker_, deadline_);
    const bool stops = options_.clock == DropOptions::Clock::period && worker_.now() >= deadline_;
    if (sum.micro_batches() == 0) {
      worker_.skip_steps(1);
    } else {
      worker_.descend(sum / worker_.micro_batches());
      ++*taken_;
    }
    return !stops;
  }

 private:
  DropOptions options_;
  Time deadline_{};
};

class PullingSteps final : public LocalSteps {
 public:
  PullingSteps(Worker& worker, const PullOptions& options) : LocalSteps(worker), options_(options) {}

  void begin_round() override { began_at_ = worker_.model(); }

  bool take() override {
    if (options_.probability > 0 && worker_.uniform(worker_.step(), options_.draws) < options_.probability) {
      const double part = worker_.learning_rate() / options_.probability * options_.strength;
      worker_.set_model(worker_.combine({{1 - part, worker_.model()}, {part, began_at_}}, worker_.model()));
      worker_.skip_steps(1);
    } else {
      worker_.descend(worker_.compute_step_gradient() / worker_.micro_batches(),
                      {.rate_factor = 1 / (1 - options_.probability)});
    }
    return true;
  }

 private:
  PullOptions options_;
};

class ProximalSteps final : public LocalSteps {
 public:
  ProximalSteps(Worker& worker, double mu) : LocalSteps(worker), mu_(mu) {}

  void begin_round() override { began_at_ = worker_.model(); }

  bool take() override {
    const Gradient gradient = worker_.compute_step_gradient() / worker_.micro_batches();
    const ModelStatePtr before = worker_.model();  // after the gradient, because an outage may have set it back
    const double share = worker_.learning_rate() * mu_;
    worker_.descend(gradient);
    const ModelStatePtr after = worker_.model();
    worker_.set_model(worker_.combine({{1, after}, {-share, before}, {share, began_at_}}, after));
    return true;
  }

 private:
  double mu_;
};

class LimitedSteps final : public LocalSteps {
 public:
  LimitedSteps(Worker& worker, std::unique_ptr<LocalSteps> steps, Step most)
      : LocalSteps(worker), steps_(std::move(steps)), most_(most) {}

  void begin_round() override {
    LocalSteps::begin_round();
    steps_->begin_round();
    began_at_ = steps_->began_at();
    passed_ = 0;
  }
  bool take() override {
    const bool goes_on = steps_->take();
    ++*taken_;
    return ++passed_ < most_ && goes_on;
  }

 private:
  std::unique_ptr<LocalSteps> steps_;
  Step most_;
  Step passed_{};  // steps of this round, also those that an outage has erased
};

constexpr std::string_view unequal_steps =
    "workers take different numbers of steps, and models may be weighted by them";

using StepRuleRow = RuleRow<StepRule(Settings&, const AlgorithmContext&)>;
constexpr std::array kinds = {
    StepRuleRow{"train", "a step along its own gradient",
                [](Settings&, const AlgorithmContext&) { return make_training_steps(); }},
    StepRuleRow{"drop", "a step along its own gradient, until a time is over (DropCompute)", read_dropping_steps},
    StepRuleRow{"proximal", "a step along its own gradient, and one back towards the round's first model (FedProx)",
                read_proximal_steps},
    StepRuleRow{"pull", "a step along its own gradient, or a pull back towards the round's first model (PALSGD)",
                [](Settings& settings, const AlgorithmContext&) { return read_pulling_steps(settings, ""); }},
};

}  // namespace

StepRule make_training_steps(const LocalPhase& phase) {
  return {.begin = [phase](Worker& worker) { return std::make_unique<TrainingSteps>(worker, phase); },
          .traits = {.follows_clock = false,
                     .lockstep_from_step = 0,
                     .takes_data_in_turn = phase.sampling == LocalPhase::Sampling::shards},
          .phase = phase};
}

StepRule make_dropping_steps(const DropOptions& options) {
  return {.begin = [options](Worker& worker) { return std::make_unique<DroppingSteps>(worker, options); },
          .traits = {.exchanged_whole = unequal_steps},
          .may_stop = true,
          .train_together =
              [options](Worker& worker, Step until, const StatePolicies& policies) {
                while (worker.step() < until && worker.budget_left()) {  // steps of DropCompute
                  Gradient sum = compute_until(worker, later(worker.now(), options.threshold));
                  worker.all_reduce_sum(sum);
                  worker.descend(sum / (worker.size() * worker.micro_batches()));
                  publish(worker, policies);
                }
              }};
}

StepRule make_pulling_steps(const PullOptions& options) {
  return {.begin = [options](Worker& worker) { return std::make_unique<PullingSteps>(worker, options); },
          .traits = {.follows_clock = false}};
}

StepRule make_proximal_steps(double mu) {
  return {.begin = [mu](Worker& worker) { return std::make_unique<ProximalSteps>(worker, mu); },
          .traits = {.follows_clock = false}};
}

StepRule limit_steps(const StepRule& steps, std::vector<Step> of_workers) {
  StepRule limited{.traits = steps.traits, .may_stop = true};
  limited.traits.lockstep_from_step.reset();
  limited.traits.exchanged_whole = unequal_steps;
  limited.begin = [steps, of_workers = std::move(of_workers)](Worker& worker) {
    const Step most = of_workers[static_cast<std::size_t>(worker.rank().value)];
    return std::make_unique<LimitedSteps>(worker, steps.begin(worker), most);
  };
  return limited;
}

std::vector<Step> read_steps_of_workers(Settings& settings, const AlgorithmContext& context) {
  std::vector<Step> steps;
  const Key key{"steps_of_workers",
                "Each worker's number of local steps in a round, by rank; never more than the period's.", "steps",
                "the period's"};
  for (const std::int64_t number : settings.integers(key, 1, 1'000'000'000, std::vector<std::int64_t>{}))
    steps.emplace_back(number);
  if (!steps.empty() && context.workers_known && std::ssize(steps) != context.workers) {
    settings.fault("steps_of_workers", fmt::format("must have one number for each of {} workers", context.workers));
    steps.resize(static_cast<std::size_t>(context.workers), Step{1});
  }
  return steps;
}

StepRule read_dropping_steps(Settings& settings, const AlgorithmContext& context) {
  using Clock = DropOptions::Clock;
  DropOptions options;
  options.threshold = from_seconds(
      settings.number({"threshold_s", "Time after which a worker skips its remaining steps.", "s"}, Range::positive()));
  check_threshold(settings, options.threshold, context.shortest_micro_batch_s);
  options.clock = settings.choice({"clock", "Whether the threshold applies to a whole period or to each local step."},
                                  {{"period", Clock::period}, {"step", Clock::step}}, options.clock);
  return make_dropping_steps(options);
}

StepRule read_proximal_steps(Settings& settings, const AlgorithmContext&) {
  return make_proximal_steps(
      settings.number({"proximal", "Strength of the pull back towards the round's first model (mu)."},
                      Range::finite_from_zero(), 0.01));
}

StepRule read_pulling_steps(Settings& settings, std::string_view prefix) {
  const std::string probability = std::string(prefix) + "probability", strength = std::string(prefix) + "strength";
  PullOptions pull;
  pull.probability =
      settings.number({probability, "Probability that a local step is a pull towards the last outer model (p)."},
                      Range::below_one(), pull.probability);
  pull.strength =
      settings.number({strength, "Strength of a pull (lambda), which goes the share lambda x eta / p of the way."},
                      Range::at_least(0), pull.strength);
  pull.draws =
      settings.choice({"draws", "Whether each worker draws its pulls, or all workers are pulled in the same steps."},
                      {{"own", Drawn::alone}, {"shared", Drawn::together}}, pull.draws);
  return make_pulling_steps(pull);
}

StepRule read_steps(Settings& settings, const AlgorithmContext& context) {
  if (!settings.has("steps")) return make_training_steps(read_local_phase(settings, context));
  if (settings.has("local_phase"))
    settings.fault("local_phase",
                   "cannot be combined with `steps`: `local_phase` is for steps along workers' own gradients");
  Settings table = settings.section({"steps", "What a worker does in a local step."});
  const auto* const row = table.row({"kind", "The kind of steps."}, kinds);
  return row ? row->make(table, context) : make_training_steps();
}

}  // namespace syncopate
