#include "algorithms/synchronous/drop_compensation.hpp"

#include <array>
#include <cmath>

#include "algorithms/synchronous/carry_over.hpp"
#include "algorithms/synchronous/extra_steps.hpp"
#include "algorithms/synchronous/recomputation.hpp"

namespace syncopate {

StepWork fresh_work(const Worker& worker, std::int64_t first, int count) {
  const int m = worker.micro_batches();
  return {.fresh = {worker.rank(), Step{first / m}, static_cast<int>(first % m)},
          .fresh_count = static_cast<std::size_t>(count),
          .micro_batches = m,
          .offered = count,
          .offered_at_most = count};
}

namespace {

class NoCompensation final : public DropCompensation {
 public:
  std::unique_ptr<Course> begin(Worker& worker) const override {
    return std::make_unique<FreshWork>(worker.micro_batches());
  }
  bool is_none() const override { return true; }
};

class LargerBatch final : public DropCompensation {
 public:
  explicit LargerBatch(double redundancy) : redundancy_(redundancy) {}
  std::unique_ptr<Course> begin(Worker& worker) const override {
    return std::make_unique<Steps>(worker.micro_batches() * (1 + redundancy_));
  }

 private:
  class Steps final : public Course {
   public:
    explicit Steps(double per_step) : per_step_(per_step) {}
    StepWork next(Worker& worker) override {
      const std::int64_t first = offered_before(worker.step());
      offered_ = static_cast<int>(offered_before(worker.step() + 1) - first);
      StepWork work = fresh_work(worker, first, offered_);
      work.offered_at_most = static_cast<int>(std::ceil(per_step_ - 1e-6));
      return work;
    }
    std::int64_t computed(std::size_t) override { return offered_; }

   private:
    // The small addend keeps a whole number whole that the product has left just below.
    std::int64_t offered_before(Step step) const {
      return static_cast<std::int64_t>(std::floor(static_cast<double>(step.value()) * per_step_ + 1e-6));
    }

    double per_step_;  // M'
    int offered_ = 0;
  };

  double redundancy_;
};

}  // namespace

std::shared_ptr<const DropCompensation> make_no_compensation() { return std::make_shared<NoCompensation>(); }

std::shared_ptr<const DropCompensation> make_larger_batch(double redundancy) {
  return std::make_shared<LargerBatch>(redundancy);
}

// The card.
namespace {

std::shared_ptr<const DropCompensation> read_none(Settings&, const DropCompensationContext&) {
  return make_no_compensation();
}

std::shared_ptr<const DropCompensation> read_larger_batch(Settings& settings, const DropCompensationContext&) {
  return make_larger_batch(settings.number(redundancy_key, redundancies));
}

constexpr std::array rows = {
    DropCompensationRow{"none", "dropped micro-batches are lost", read_none},
    DropCompensationRow{"extra-steps", "the run goes on until it has computed as much as was planned",
                        read_extra_steps},
    DropCompensationRow{"larger-batch", "steps have more micro-batches, by the share `redundancy` on average",
                        read_larger_batch},
    DropCompensationRow{"recompute", "dropped micro-batches are computed before the next epoch, in additional steps",
                        read_recomputation},
    DropCompensationRow{"carry-over", "dropped micro-batches come first in the next step", read_carry_over},
};

}  // namespace

std::span<const DropCompensationRow> drop_compensations() { return rows; }

std::shared_ptr<const DropCompensation> read_drop_compensation(Settings& settings,
                                                               const DropCompensationContext& context) {
  const auto* const row = settings.row({"compensation", "What is done about dropped micro-batches."}, rows, "none");
  return row->make(settings, context);
}

}  // namespace syncopate
