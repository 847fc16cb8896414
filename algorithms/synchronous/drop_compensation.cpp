#include "algorithms/synchronous/drop_compensation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {

namespace {

using State = DropCompensation::State;

// A step's work: the `count` micro-batches of the worker's data that follow the `first` ones, which are used up.
StepWork fresh_work(const Worker& worker, std::int64_t first, int count) {
  const int m = worker.micro_batches();
  return {.fresh = {worker.rank(), Step{first / m}, static_cast<int>(first % m)},
          .fresh_count = static_cast<std::size_t>(count),
          .micro_batches = m,
          .offered = count,
          .offered_at_most = count};
}

// Steps with `per_step` micro-batches on average, all of them fresh.
class FreshWork : public State {
 public:
  explicit FreshWork(double per_step) : per_step_(per_step) {}

  StepWork next(Worker& worker) override {
    const std::int64_t first = offered_before(worker.step());
    offered_ = static_cast<int>(offered_before(worker.step() + 1) - first);
    StepWork work = fresh_work(worker, first, offered_);
    work.offered_at_most = static_cast<int>(std::ceil(per_step_ - 1e-6));
    return work;
  }
  std::int64_t computed(std::size_t) override { return offered_; }

 private:
  // 1e-6 corrects products that should be whole numbers and are rounded to slightly less.
  std::int64_t offered_before(Step step) const {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(step.value()) * per_step_ + 1e-6));
  }

  double per_step_;  // M'
  int offered_ = 0;
};

class CarryOver final : public State {
 public:
  CarryOver(const Worker& worker, int at_most) : at_most_(static_cast<std::size_t>(at_most)), work_(worker) {}

  StepWork next(Worker& worker) override {
    samples_ = std::exchange(carried_, {});
    *work_ = fresh_work(worker, worker.step().value() * worker.micro_batches(), worker.micro_batches());
    (*work_).earlier = samples_;
    planned_ = (*work_).size();
    return *work_;
  }

  // A carried micro-batch counts neither as kept nor as dropped in this step.
  std::int64_t computed(std::size_t count) override {
    for (std::size_t i = count; i < (*work_).size() && carried_.size() < at_most_; ++i) carried_.push_back((*work_)[i]);
    return static_cast<std::int64_t>(planned_ - carried_.size());
  }

 private:
  std::size_t at_most_;
  std::vector<MicroBatch> samples_;  // carried over from earlier steps to this one
  ResetOnOutage<StepWork> work_;     // this step's work; an outage resets it, so that nothing is carried over
  std::size_t planned_ = 0;
  std::vector<MicroBatch> carried_;
};

class ExtraSteps final : public FreshWork {
 public:
  ExtraSteps(Worker& worker, std::optional<double> redundancy, ExtraStepsSchedule schedule)
      : FreshWork(worker.micro_batches()), planned_(worker.steps_left()), is_extended_(redundancy.has_value()) {
    if (redundancy) extend(worker, *redundancy, schedule);
  }

  void finished(Worker& worker, std::int64_t kept) override {
    kept_ += kept;
    if (is_extended_ || worker.steps_left() > Step{0}) return;
    is_extended_ = true;
    const double planned = static_cast<double>(planned_.value()) * worker.size() * worker.micro_batches();
    if (kept_ > 0) extend(worker, planned / static_cast<double>(kept_) - 1, ExtraStepsSchedule::kept);
  }

 private:
  void extend(Worker& worker, double redundancy, ExtraStepsSchedule schedule) const {
    const double extra = std::round(redundancy * static_cast<double>(planned_.value()));
    worker.extend_budget(Step{static_cast<Step::Rep>(extra)}, schedule == ExtraStepsSchedule::stretched);
  }

  Step planned_;  // I_base
  bool is_extended_;
  std::int64_t kept_ = 0;  // micro-batches of all workers
};

class Recomputation final : public State {
 public:
  Recomputation(const Worker& worker, Step every_steps) : every_steps_(every_steps), dropped_(worker), again_(worker) {}

  StepWork next(Worker& worker) override {
    const int m = worker.micro_batches();
    const Step step = worker.step() - added_steps_;  // step number without added steps
    if (step.value() % every_steps_.value() == 0 && step > since_) begin_epoch(worker, step);
    if (added_steps_left_ == 0) return work_ = fresh_work(worker, step.value() * m, m);
    --added_steps_left_;
    ++added_steps_;
    const auto end = (*again_).begin() + std::min<std::ptrdiff_t>(m, std::ssize(*again_));
    samples_.assign((*again_).begin(), end);
    (*again_).erase((*again_).begin(), end);
    return work_ = {.earlier = samples_, .offered = m, .usual = false};
  }

  std::int64_t computed(std::size_t count) override {
    if (!work_.usual) return static_cast<std::int64_t>(count);
    for (std::size_t i = count; i < work_.size(); ++i) (*dropped_).push_back(work_[i]);
    return work_.offered;
  }

  void finished(Worker&, std::int64_t kept) override {
    if (work_.usual) kept_ += kept;
  }

 private:
  // All workers take the number of additional steps that the worker with the most dropped micro-batches needs.
  void begin_epoch(Worker& worker, Step step) {
    const std::int64_t m = worker.micro_batches();
    const std::int64_t planned = (step - since_).value() * worker.size() * m;
    since_ = step;
    if (std::exchange(kept_, 0) == planned) return;  // all workers know that none has dropped a micro-batch
    *again_ = std::exchange(*dropped_, {});
    const auto own = static_cast<double>((*again_).size());
    const auto longest =
        worker.all_gather({&own, 1}, [](std::span<const double> all) { return *std::ranges::max_element(all); });
    added_steps_left_ = (static_cast<std::int64_t>(*longest) + m - 1) / m;
  }

  Step every_steps_;
  Step since_{};           // step at which this epoch began
  std::int64_t kept_ = 0;  // micro-batches of all workers in this epoch
  StepWork work_;
  std::vector<MicroBatch> samples_;
  ResetOnOutage<std::vector<MicroBatch>> dropped_;  // micro-batches dropped in this epoch
  ResetOnOutage<std::vector<MicroBatch>> again_;    // micro-batches still to be recomputed
  std::int64_t added_steps_left_ = 0;
  Step added_steps_{};
};

const Key redundancy_key{"redundancy", "Amount of additional computation (R), as a share of the planned work."};
constexpr Range redundancies{.low = 0, .high = 1000};

DropCompensation read_none(Settings&, const AlgorithmContext&) { return make_no_compensation(); }

DropCompensation read_larger_batch(Settings& settings, const AlgorithmContext&) {
  return make_larger_batch(settings.number(redundancy_key, redundancies));
}

DropCompensation read_carry_over(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = 1'000'000;
  return make_carry_over(static_cast<int>(
      settings.integer({"carried_at_most", "Maximum number of micro-batches that a worker carries over."}, 0, most,
                       Stated(context.micro_batches, "cluster.micro_batches"))));
}

// Reports a fault if extra steps would use a learning rate of nearly zero: they would take time and change nothing.
void check_rate_of_extra_steps(Settings& settings, const AlgorithmContext& context, bool has_redundancy) {
  constexpr double least_share = 0.01;  // share of the peak
  if (!context.learning_rate || !context.total_steps) return;
  const double peak = context.learning_rate->options().peak, end = context.learning_rate->at(*context.total_steps);
  if (end >= least_share * peak * (1 - 1e-9)) return;
  const std::string why = fmt::format(
      "the learning rate ends at {:g}, below a hundredth of its peak of {:g}, and extra steps at that rate change "
      "nothing",
      end, peak);
  if (has_redundancy)
    settings.fault("learning_rate_schedule", "must be \"stretched\": " + why);
  else
    settings.fault(
        "compensation",
        "needs the key `redundancy`, with which the schedule can be stretched, or a schedule whose last rate "
        "is higher: " +
            why);
}

DropCompensation read_extra_steps(Settings& settings, const AlgorithmContext& context) {
  if (!context.counts_steps)
    settings.fault("compensation",
                   "must not be \"extra-steps\": the budget counts neither steps nor epochs that could be extended");
  const auto redundancy = settings.optional_number(redundancy_key, redundancies);
  const auto schedule =
      settings.choice({"learning_rate_schedule",
                       "Whether extra steps use the schedule's last rate, or the schedule is stretched over them."},
                      {{"kept", ExtraStepsSchedule::kept}, {"stretched", ExtraStepsSchedule::stretched}},
                      redundancy ? ExtraStepsSchedule::stretched : ExtraStepsSchedule::kept,
                      "\"stretched\" with `redundancy`, else \"kept\"");
  if (schedule == ExtraStepsSchedule::stretched && !redundancy)
    settings.fault("learning_rate_schedule",
                   "must be \"kept\" unless `redundancy` is given: stretching needs the run's length in advance");
  if (schedule == ExtraStepsSchedule::kept) check_rate_of_extra_steps(settings, context, redundancy.has_value());
  return make_extra_steps(redundancy, schedule);
}

DropCompensation read_recomputation(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::optional<Stated<std::int64_t>> epoch;
  if (context.has_epochs) epoch = Stated(context.steps_per_epoch.value_or(1).value(), "an epoch");
  const char* const key = "recompute_every_steps";
  const Step every =
      settings.integer({key, "After how many steps dropped micro-batches are computed.", "steps"}, 1, most, epoch);
  if (context.total_steps && every >= *context.total_steps)
    settings.fault(settings.has(key) ? key : "compensation",
                   fmt::format("would compute dropped micro-batches after {} steps, but the run ends after {}; "
                               "recompute_every_steps must be smaller",
                               every.value(), context.total_steps->value()));
  return make_recomputation(every);
}

constexpr std::array compensation_rows = {
    DropCompensationRow{"none", "dropped micro-batches are lost", read_none},
    DropCompensationRow{"extra-steps", "the run is extended until it has computed as much as was planned",
                        read_extra_steps},
    DropCompensationRow{"larger-batch", "steps have 1 + `redundancy` times as many micro-batches on average",
                        read_larger_batch},
    DropCompensationRow{"recompute", "dropped micro-batches are computed before the next epoch, in additional steps",
                        read_recomputation},
    DropCompensationRow{"carry-over", "dropped micro-batches come first in the next step", read_carry_over},
};

}  // namespace

DropCompensation make_no_compensation() {
  return {.begin = [](Worker& worker) { return std::make_unique<FreshWork>(worker.micro_batches()); }, .is_none = true};
}

DropCompensation make_larger_batch(double redundancy) {
  return {
      .begin = [=](Worker& worker) { return std::make_unique<FreshWork>(worker.micro_batches() * (1 + redundancy)); }};
}

DropCompensation make_carry_over(int at_most) {
  return {.begin = [=](Worker& worker) { return std::make_unique<CarryOver>(worker, at_most); }, .carries_over = true};
}

DropCompensation make_extra_steps(std::optional<double> redundancy, ExtraStepsSchedule schedule) {
  return {.begin = [=](Worker& worker) { return std::make_unique<ExtraSteps>(worker, redundancy, schedule); }};
}

DropCompensation make_recomputation(Step every_steps) {
  return {.begin = [=](Worker& worker) { return std::make_unique<Recomputation>(worker, every_steps); },
          .computes_dropped = true};
}

std::span<const DropCompensationRow> drop_compensations() { return compensation_rows; }

DropCompensation read_drop_compensation(Settings& settings, const AlgorithmContext& context) {
  const auto* const row =
      settings.row({"compensation", "Compensation for dropped micro-batches."}, compensation_rows, "none");
  return row->make(settings, context);
}

}  // namespace syncopate
