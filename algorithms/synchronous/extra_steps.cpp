#include "algorithms/synchronous/extra_steps.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace syncopate {
namespace {

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
  std::int64_t kept_ = 0;  // over all workers
};

class ExtraStepsCompensation final : public DropCompensation {
 public:
  ExtraStepsCompensation(std::optional<double> redundancy, ExtraStepsSchedule schedule)
      : redundancy_(redundancy), schedule_(schedule) {}
  std::unique_ptr<Course> begin(Worker& worker) const override {
    return std::make_unique<ExtraSteps>(worker, redundancy_, schedule_);
  }

 private:
  std::optional<double> redundancy_;
  ExtraStepsSchedule schedule_;
};

}  // namespace

// The card.
std::shared_ptr<const DropCompensation> make_extra_steps(std::optional<double> redundancy,
                                                         ExtraStepsSchedule schedule) {
  return std::make_shared<ExtraStepsCompensation>(redundancy, schedule);
}

namespace {

// Steps at the end of a schedule that falls to nearly nothing would take time and change nothing.
void check_rate_of_extra_steps(Settings& settings, const DropCompensationContext& context, bool has_redundancy) {
  constexpr double least_share = 0.01;  // of the peak
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
    settings.fault("compensation",
                   "must have `redundancy` beside it, so that the schedule can be stretched, or the "
                   "schedule must end higher: " +
                       why);
}

}  // namespace

std::shared_ptr<const DropCompensation> read_extra_steps(Settings& settings, const DropCompensationContext& context) {
  if (!context.counts_steps)
    settings.fault("compensation", "must not be extra steps where the budget counts neither steps nor epochs");
  const auto redundancy = settings.optional_number(redundancy_key, redundancies);
  const auto schedule =
      settings.choice({"learning_rate_schedule",
                       "Whether the learning rate stays at its end in extra steps, or its schedule is longer."},
                      {{"kept", ExtraStepsSchedule::kept}, {"stretched", ExtraStepsSchedule::stretched}},
                      redundancy ? ExtraStepsSchedule::stretched : ExtraStepsSchedule::kept,
                      "\"stretched\" with `redundancy`, else \"kept\"");
  if (schedule == ExtraStepsSchedule::stretched && !redundancy)
    settings.fault("learning_rate_schedule",
                   "must be \"kept\" unless `redundancy` says beforehand how long the run is");
  if (schedule == ExtraStepsSchedule::kept) check_rate_of_extra_steps(settings, context, redundancy.has_value());
  return make_extra_steps(redundancy, schedule);
}

}  // namespace syncopate
