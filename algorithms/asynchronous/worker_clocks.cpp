#include "algorithms/asynchronous/worker_clocks.hpp"

namespace syncopate {

WorkerClocks::WorkerClocks(int workers) : clock_(workers, 0), workers_at_{workers} {}

bool WorkerClocks::tick(Rank worker) {
  const auto ahead = static_cast<std::size_t>(ahead_of_slowest(worker));
  if (ahead + 1 == workers_at_.size()) workers_at_.push_back(0);
  --workers_at_[ahead];
  ++workers_at_[ahead + 1];
  ++*clock_[worker];
  return raise_slowest();
}

bool WorkerClocks::remove(Rank worker) {
  --workers_at_[static_cast<std::size_t>(ahead_of_slowest(worker))];
  clock_[worker].reset();
  return raise_slowest();
}

bool WorkerClocks::raise_slowest() {
  bool raised = false;
  while (workers_at_.front() == 0 && workers_at_.size() > 1) {
    workers_at_.pop_front();
    ++slowest_;
    raised = true;
  }
  return raised;
}

}  // namespace syncopate
