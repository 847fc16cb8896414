#include "algorithms/synchronous/recomputation.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "workers/lost_with_state.hpp"

namespace syncopate {
namespace {

class Recomputation final : public DropCompensation::Course {
 public:
  Recomputation(const Worker& worker, Step every_steps) : every_steps_(every_steps), dropped_(worker), again_(worker) {}

  StepWork next(Worker& worker) override {
    const int m = worker.micro_batches();
    const Step step = worker.step() - added_steps_;  // as the file plans them
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
  // Everybody takes as many additional steps as the worker with the longest list needs.
  void begin_epoch(Worker& worker, Step step) {
    const std::int64_t m = worker.micro_batches();
    const std::int64_t planned = (step - since_).value() * worker.size() * m;
    since_ = step;
    if (std::exchange(kept_, 0) == planned) return;  // nobody has dropped any, as all workers know
    *again_ = std::exchange(*dropped_, {});
    const auto own = static_cast<double>((*again_).size());
    const auto longest =
        worker.all_gather({&own, 1}, [](std::span<const double> all) { return *std::ranges::max_element(all); });
    added_steps_left_ = (static_cast<std::int64_t>(*longest) + m - 1) / m;
  }

  Step every_steps_;
  Step since_{};           // step at which this epoch began
  std::int64_t kept_ = 0;  // in this epoch, over all workers
  StepWork work_;
  std::vector<MicroBatch> samples_;
  LostWithState<std::vector<MicroBatch>> dropped_;  // in this epoch
  LostWithState<std::vector<MicroBatch>> again_;    // still to be computed again
  std::int64_t added_steps_left_ = 0;
  Step added_steps_{};
};

class RecomputationCompensation final : public DropCompensation {
 public:
  explicit RecomputationCompensation(Step every_steps) : every_steps_(every_steps) {}
  std::unique_ptr<Course> begin(Worker& worker) const override {
    return std::make_unique<Recomputation>(worker, every_steps_);
  }
  bool computes_dropped() const override { return true; }

 private:
  Step every_steps_;
};

}  // namespace

// The card.
std::shared_ptr<const DropCompensation> make_recomputation(Step every_steps) {
  return std::make_shared<RecomputationCompensation>(every_steps);
}

std::shared_ptr<const DropCompensation> read_recomputation(Settings& settings, const DropCompensationContext& context) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::optional<Stated<std::int64_t>> epoch;
  if (context.has_epochs) epoch = Stated(context.steps_per_epoch.value_or(1).value(), "an epoch");
  return make_recomputation(settings.integer(
      {"recompute_every_steps", "After how many steps what was dropped since is computed.", "steps"}, 1, most, epoch));
}

}  // namespace syncopate
