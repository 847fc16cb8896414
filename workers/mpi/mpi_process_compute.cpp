// The time and the arithmetic of a micro-batch on an MPI rank.
#include <algorithm>

#include "workers/interrupt.hpp"
#include "workers/mpi/mpi_process.hpp"
#include "workers/mpi/mpi_wait.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

std::optional<Gradient> MpiCluster::Process::compute_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                                              const Deadline& deadline) {
  clock_.book(Activity::compute);
  if (interrupted()) throw Interrupted();
  if (options_.has_server) mailbox_->progress();
  const Time start = clock_.booked();
  if (!end_of_micro_batch(start, Duration{0}, deadline).kept) return std::nullopt;  // not begun

  const bool emulates = options_.pace == Pace::emulate || options_.training.time_only();
  Duration drawn{};
  if (emulates)
    options_.compute_time.durations(self_, micro_batch.step, static_cast<std::uint32_t>(micro_batch.index),
                                    {&drawn, 1});
  else
    drawn = options_.compute_time.added(self_, micro_batch.step, static_cast<std::uint32_t>(micro_batch.index));

  // Work that will certainly be lost is slept through, not computed: the time is the same.
  MicroBatchEnd end = end_of_micro_batch(start, drawn, deadline);
  const bool certain = emulates || deadline.preempt == Preempt::discard;
  std::shared_ptr<GradientSum> sum;
  if ((end.kept || !certain) && !server_is_gone()) {
    sum = evaluate(at, micro_batch);
    const Duration measured = clock_.now() - start;
    const double factor = options_.compute_time.factor(self_);
    const Duration total = emulates
                               ? std::max(drawn, measured)
                               : drawn + measured + from_seconds((std::max(factor, 1.0) - 1) * to_seconds(measured));
    end = end_of_micro_batch(start, total, deadline);
  }
  sleep_until(end.at);
  clock_.book(end.kept ? Activity::compute : Activity::discarded);
  if (!end.kept) return std::nullopt;
  const Duration spent = clock_.booked() - start;
  ++tally(self_).computed;
  tally(self_).computed_ns += spent.count();
  return sum ? Gradient(std::move(sum), 1, spent) : Gradient(at, micro_batch, spent);
}

// The value now, left where the backward pass put it.
std::shared_ptr<GradientSum> MpiCluster::Process::evaluate(const ModelStatePtr& at, const MicroBatch& micro_batch) {
  if (!at) return nullptr;  // time-only
  Training& training = options_.training;
  training.executor().wait(at->parameters->producer);
  double scale = 1;
  auto sum = fix_sum(Gradient(at, micro_batch, {}), training.objective(), scale);
  for (auto& chunk : sum->chunks) evaluate_chunk(chunk, training.objective());
  sum->submitted = true;
  return sum;
}

// In slices, so that messages keep flowing, an interrupt is heard, and the end of the server ends a
// sleep of any length.
void MpiCluster::Process::sleep_until(Time end) {
  constexpr Duration slice = std::chrono::milliseconds(2);
  constexpr Duration slice_while_sending = std::chrono::microseconds(200);
  for (Time at = now(); at < end; at = now()) {
    if (interrupted()) throw Interrupted();
    mailbox_->progress();
    if (server_is_gone()) return;
    const Time wake = std::min(end, later(at, mailbox_->sending() ? slice_while_sending : slice));
    sleep_until_monotonic(clock_.to_monotonic_ns(wake));
  }
}

}  // namespace syncopate
