#include "algorithms/drop_compute.hpp"

namespace syncopate {

void DropCompute::run(Worker& worker) const {
  while (worker.budget_left()) {
    const Deadline deadline(later(worker.now(), threshold_), preempt_, forward_share_);
    Gradient sum;
    for (int m = 0; m < worker.micro_batches(); ++m) {
      const auto gradient = worker.compute_gradient(deadline);
      if (!gradient) break;
      sum += *gradient;
    }
    worker.all_reduce_sum(sum);
    worker.descend(sum / (worker.size() * worker.micro_batches()));  // constant: a dropped micro-batch counts as zero
    worker.publish();
  }
}

std::unique_ptr<Algorithm> make_drop_compute(Settings& settings, const AlgorithmContext&) {
  static constexpr std::string_view names[] = {"discard", "microbatch", "backward"};
  const double threshold_s = settings.number("threshold_s", Range::positive());
  const std::string preempt = settings.choice("preempt", names, "discard");
  const double forward_share = settings.number("forward_share", Range::between(0, 1), 1.0 / 3);
  return std::make_unique<DropCompute>(from_seconds(threshold_s),
                                       preempt == "discard"      ? Preempt::discard
                                       : preempt == "microbatch" ? Preempt::microbatch
                                                                 : Preempt::backward,
                                       forward_share);
}

}  // namespace syncopate
