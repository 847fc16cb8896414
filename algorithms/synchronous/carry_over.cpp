#include "algorithms/synchronous/carry_over.hpp"

#include <utility>
#include <vector>

#include "workers/lost_with_state.hpp"

namespace syncopate {
namespace {

class CarryOver final : public DropCompensation::Course {
 public:
  CarryOver(const Worker& worker, int at_most) : at_most_(static_cast<std::size_t>(at_most)), work_(worker) {}

  StepWork next(Worker& worker) override {
    samples_ = std::exchange(carried_, {});
    *work_ = fresh_work(worker, worker.step().value() * worker.micro_batches(), worker.micro_batches());
    (*work_).earlier = samples_;
    planned_ = (*work_).size();
    return *work_;
  }

  // What is carried over is neither kept yet nor lost.
  std::int64_t computed(std::size_t count) override {
    for (std::size_t i = count; i < (*work_).size() && carried_.size() < at_most_; ++i) carried_.push_back((*work_)[i]);
    return static_cast<std::int64_t>(planned_ - carried_.size());
  }

 private:
  std::size_t at_most_;
  std::vector<MicroBatch> samples_;  // of steps gone by, for this one
  LostWithState<StepWork> work_;     // of this step, so that nothing of it is carried over then
  std::size_t planned_ = 0;
  std::vector<MicroBatch> carried_;
};

class CarryOverCompensation final : public DropCompensation {
 public:
  explicit CarryOverCompensation(int at_most) : at_most_(at_most) {}
  std::unique_ptr<Course> begin(Worker& worker) const override { return std::make_unique<CarryOver>(worker, at_most_); }
  bool carries_over() const override { return true; }

 private:
  int at_most_;
};

}  // namespace

// The card.
std::shared_ptr<const DropCompensation> make_carry_over(int at_most) {
  return std::make_shared<CarryOverCompensation>(at_most);
}

std::shared_ptr<const DropCompensation> read_carry_over(Settings& settings, const DropCompensationContext& context) {
  constexpr std::int64_t most = 1'000'000;
  return make_carry_over(static_cast<int>(
      settings.integer({"carried_at_most", "How many dropped micro-batches a worker takes along at most."}, 0, most,
                       Stated(context.micro_batches, "cluster.micro_batches"))));
}

}  // namespace syncopate
