#include "algorithms/synchronous/drop_compensation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {
namespace {

using Course = DropCompensation::Course;

class Compensation final : public DropCompensation {
 public:
  using Begin = std::function<std::unique_ptr<Course>(Worker&)>;
  explicit Compensation(Begin begin) : begin_(std::move(begin)) {}
  std::unique_ptr<Course> begin(Worker& worker) const override { return begin_(worker); }

 private:
  Begin begin_;
};

// Adds the next `count` micro-batches of the worker's data, as if every step so far had taken as many. With
// count = M they are those of its step.
void append_fresh(const Worker& worker, int count, std::vector<MicroBatch>& samples) {
  const int m = worker.micro_batches();
  const std::int64_t first = worker.file_step().value() * count;
  MicroBatch next{worker.rank(), Step{first / m}, static_cast<int>(first % m)};
  for (int i = 0; i < count; ++i) {
    samples.push_back(next);
    if (++next.index == m) next = {next.worker, next.step + 1, 0};
  }
}

// The same number of fresh micro-batches at every step.
class FreshWork : public Course {
 public:
  explicit FreshWork(int offered) : offered_(offered) {}

  StepWork next(Worker& worker) override {
    thread_local std::vector<MicroBatch> samples;  // one for all fibers: thousands would never be in the cache
    samples.clear();
    append_fresh(worker, offered_, samples);
    return {.samples = samples, .offered = offered_};
  }
  void computed(Worker& worker, std::size_t) override { worker.plan_micro_batches(offered_); }

 private:
  int offered_;
};

class LargerBatch final : public FreshWork {
 public:
  // The small subtrahend keeps a whole number whole that the product has left just above.
  LargerBatch(const Worker& worker, double redundancy)
      : FreshWork(static_cast<int>(std::ceil(worker.micro_batches() * (1 + redundancy) - 1e-9))) {}
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
  std::int64_t kept_ = 0;  // over all workers
};

class Recomputation final : public Course {
 public:
  explicit Recomputation(Step every_steps) : every_steps_(every_steps) {}

  StepWork next(Worker& worker) override {
    const int m = worker.micro_batches();
    const Step step = worker.file_step();
    if (step.value() % every_steps_.value() == 0 && step > since_) begin_epoch(worker);
    samples_.clear();
    losses_ = worker.states_lost();
    is_usual_ = added_steps_left_ == 0;
    if (is_usual_) {
      append_fresh(worker, m, samples_);
    } else {
      --added_steps_left_;
      worker.add_step();
      const auto end = again_.begin() + std::min<std::ptrdiff_t>(m, std::ssize(again_));
      samples_.assign(again_.begin(), end);
      again_.erase(again_.begin(), end);
    }
    return {.samples = samples_, .offered = m, .usual = is_usual_};
  }

  void computed(Worker& worker, std::size_t count) override {
    if (worker.states_lost() > losses_) {  // and with it the lists of earlier steps
      dropped_.clear();
      again_.clear();
    }
    if (is_usual_)
      dropped_.insert(dropped_.end(), samples_.begin() + static_cast<std::ptrdiff_t>(count), samples_.end());
    else
      worker.plan_micro_batches(static_cast<std::int64_t>(count));
  }

  void finished(Worker&, std::int64_t kept) override {
    if (is_usual_) kept_ += kept;
  }

 private:
  // Everybody takes as many additional steps as the worker with the longest list needs.
  void begin_epoch(Worker& worker) {
    const std::int64_t m = worker.micro_batches();
    const std::int64_t planned = (worker.file_step() - since_).value() * worker.size() * m;
    since_ = worker.file_step();
    if (std::exchange(kept_, 0) == planned) return;  // nobody has dropped any, as all workers know
    again_ = std::exchange(dropped_, {});
    const auto own = static_cast<double>(again_.size());
    const SharedNumbers lengths = worker.all_gather({&own, 1});
    const auto longest = static_cast<std::int64_t>(*std::ranges::max_element(*lengths));
    added_steps_left_ = (longest + m - 1) / m;
  }

  Step every_steps_;
  Step since_{};           // step at which this epoch began
  std::int64_t kept_ = 0;  // in this epoch, over all workers
  std::vector<MicroBatch> samples_;
  bool is_usual_ = true;
  std::vector<MicroBatch> dropped_;  // in this epoch
  std::vector<MicroBatch> again_;    // still to be computed again
  std::int64_t added_steps_left_ = 0;
  int losses_ = 0;  // of the worker's state, when the step began
};

class CarryOver final : public Course {
 public:
  explicit CarryOver(int at_most) : at_most_(at_most) {}

  StepWork next(Worker& worker) override {
    samples_.swap(carried_);
    losses_ = worker.states_lost();
    append_fresh(worker, worker.micro_batches(), samples_);
    return {.samples = samples_, .offered = worker.micro_batches()};
  }

  // What is carried over is neither kept yet nor lost; the list is, with the worker's state.
  void computed(Worker& worker, std::size_t count) override {
    const auto left = samples_.size() - count;
    const std::size_t carried = worker.states_lost() > losses_ ? 0 : std::min(left, static_cast<std::size_t>(at_most_));
    const auto first = samples_.begin() + static_cast<std::ptrdiff_t>(count);
    carried_.assign(first, first + static_cast<std::ptrdiff_t>(carried));
    worker.plan_micro_batches(static_cast<std::int64_t>(samples_.size() - carried));
  }

 private:
  int at_most_;
  std::vector<MicroBatch> samples_;
  std::vector<MicroBatch> carried_;
  int losses_ = 0;  // of the worker's state, when the step began
};

class NoCompensation final : public DropCompensation {
 public:
  std::unique_ptr<Course> begin(Worker& worker) const override {
    return std::make_unique<FreshWork>(worker.micro_batches());
  }
  bool is_none() const override { return true; }
};

std::shared_ptr<const DropCompensation> read_none(Settings&, const DropCompensationContext&) {
  return make_no_compensation();
}

double read_redundancy(Settings& settings) { return settings.number("redundancy", {.low = 0, .high = 1000}); }

std::shared_ptr<const DropCompensation> read_extra_steps(Settings& settings, const DropCompensationContext& context) {
  static constexpr std::string_view schedules[] = {"kept", "stretched"};
  if (!context.total_steps)
    settings.fault("compensation", "must not be extra steps where the budget counts neither steps nor epochs");
  std::optional<double> redundancy;
  if (settings.has("redundancy")) redundancy = read_redundancy(settings);
  const bool stretched = settings.choice("learning_rate_schedule", schedules, "kept") == "stretched";
  if (stretched && !redundancy)
    settings.fault("learning_rate_schedule",
                   "must be \"kept\" unless `redundancy` says beforehand how long the run is");
  return make_extra_steps(redundancy, stretched ? ExtraStepsSchedule::stretched : ExtraStepsSchedule::kept);
}

std::shared_ptr<const DropCompensation> read_larger_batch(Settings& settings, const DropCompensationContext&) {
  return make_larger_batch(read_redundancy(settings));
}

std::shared_ptr<const DropCompensation> read_recomputation(Settings& settings, const DropCompensationContext& context) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::optional<std::int64_t> epoch;
  if (context.steps_per_epoch) epoch = context.steps_per_epoch->value();
  return make_recomputation(settings.integer("recompute_every_steps", 1, most, epoch));
}

std::shared_ptr<const DropCompensation> read_carry_over(Settings& settings, const DropCompensationContext& context) {
  constexpr std::int64_t most = 1'000'000;
  return make_carry_over(static_cast<int>(settings.integer("carried_at_most", 0, most, context.micro_batches)));
}

constexpr std::array rows = {
    DropCompensationRow{"none", "dropped micro-batches are lost", read_none},
    DropCompensationRow{"extra-steps", "the run goes on until it has computed as much as was planned",
                        read_extra_steps},
    DropCompensationRow{"larger-batch", "workers have more micro-batches to compute than a step is divided by",
                        read_larger_batch},
    DropCompensationRow{"recompute", "dropped micro-batches are computed before the next epoch, in additional steps",
                        read_recomputation},
    DropCompensationRow{"carry-over", "dropped micro-batches come first in the next step", read_carry_over},
};

}  // namespace

std::shared_ptr<const DropCompensation> make_no_compensation() { return std::make_shared<NoCompensation>(); }

std::shared_ptr<const DropCompensation> make_extra_steps(std::optional<double> redundancy,
                                                         ExtraStepsSchedule schedule) {
  return std::make_shared<Compensation>(
      [=](Worker& worker) { return std::make_unique<ExtraSteps>(worker, redundancy, schedule); });
}

std::shared_ptr<const DropCompensation> make_larger_batch(double redundancy) {
  return std::make_shared<Compensation>(
      [=](const Worker& worker) { return std::make_unique<LargerBatch>(worker, redundancy); });
}

std::shared_ptr<const DropCompensation> make_recomputation(Step every_steps) {
  return std::make_shared<Compensation>([=](const Worker&) { return std::make_unique<Recomputation>(every_steps); });
}

std::shared_ptr<const DropCompensation> make_carry_over(int at_most) {
  return std::make_shared<Compensation>([=](const Worker&) { return std::make_unique<CarryOver>(at_most); });
}

std::span<const DropCompensationRow> drop_compensations() { return rows; }

std::shared_ptr<const DropCompensation> read_drop_compensation(Settings& settings,
                                                               const DropCompensationContext& context) {
  std::vector<std::string_view> names;
  for (const DropCompensationRow& row : rows) names.push_back(row.name);
  const std::string name = settings.choice("compensation", names, "none");
  const auto* const row = std::ranges::find(rows, name, &DropCompensationRow::name);
  return row == rows.end() ? make_no_compensation() : row->make(settings, context);
}

}  // namespace syncopate
