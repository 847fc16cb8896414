// One rank's work in a run on the MPI cluster: its micro-batches, and the totals and records of all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_cluster.hpp"
#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_partial_sums.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

class MpiMicroBatches {
 public:
  MpiMicroBatches(MpiRunState& state, MpiWaiting& waiting, const MpiCollectives& collectives,
                  MpiPartialSums& partial_sums, const MpiMessages& messages)
      : state_(state), waiting_(waiting), collectives_(collectives), partial_sums_(partial_sums), messages_(messages) {
    if (state.options.outages && state.is_worker()) outages_ = state.options.outages->of(state.self);
  }

  // Ends the program of a worker whose micro-batch never ends, once all other workers have finished.
  struct EndlessMicroBatch {};

  // See Cluster.
  std::optional<Gradient> compute(const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                  const Deadline& deadline);
  // The outcome of the last micro-batch. A replay computes the same result from it.
  struct Outcome {
    bool is_evaluated = false;  // whether its gradient was computed, even if it was not kept
    bool is_kept = false;
    bool is_cut = false;  // whether a deadline or an outage cut it
    double backward = 0;  // share of the backward pass done before the deadline
    Duration spent{};
  };
  const Outcome& outcome() const { return outcome_; }
  std::optional<Gradient> computed_before(const ModelStatePtr& at, const MicroBatch& samples, const Outcome& outcome);
  bool may_lose_state() const { return outages_ && state_.options.outages->loses_state(state_.self); }
  bool has_lost_state() { return std::exchange(has_lost_state_, false); }

  // Whether real arithmetic fits into the drawn (simulated) durations.
  struct Emulation {
    std::int64_t emulated = 0;  // number of micro-batches with a drawn duration
    std::int64_t overruns = 0;  // number of these whose arithmetic took longer
    Duration overrun_excess{};  // total time by which they took longer
  };
  const Emulation& emulation() const { return emulation_; }

  void serialise(StateArchive& archive) { archive(has_lost_state_, emulation_); }

 private:
  std::shared_ptr<GradientSum> promise(const ModelStatePtr& at, const MicroBatch& samples) const;
  std::shared_ptr<GradientSum> evaluate(const ModelStatePtr& at, const MicroBatch& samples);
  Duration book_passage(const MicroBatch& slot, const Passage& passage, bool kept);
  void count_overrun(Duration drawn, Duration measured);
  bool is_cancelled(const Deadline& deadline) {
    return deadline.at_message && state_.transport.has_first(MpiTransport::Kind::message);
  }
  void sleep_until(Time end, const Deadline& deadline, bool is_endless);
  [[noreturn]] void sleep_for_ever();

  MpiRunState& state_;
  MpiWaiting& waiting_;
  const MpiCollectives& collectives_;
  MpiPartialSums& partial_sums_;
  const MpiMessages& messages_;
  std::optional<WorkerOutages> outages_;
  bool has_lost_state_ = false;
  Emulation emulation_;
  Outcome outcome_;
};

// Returns the run's totals, summed over all ranks, and gathers the records of all ranks on rank 0. All ranks, also idle
// ones, call it after their programs.
RunTotals add_up(MpiRunState& state, MpiWaiting& waiting, const MpiMessages& messages,
                 const MpiPartialSums& partial_sums, const MpiMicroBatches& micro_batches);

// Archives this rank's record so far. If a trace has reached its limit, later work is missing from it.
void serialise_record(StateArchive& archive, const MpiRunState& state);

// Adds rows to steps.csv for methods without collectives. Every worker books its own steps; after the run, steps with
// equal numbers are merged into one row. Each worker's rows ascend in step, each step once, with the bytes so far:
// those it sent, and those servers sent to it. Rows are closed in that order. A row ends with its last worker, and not
// before the previous row.
void close_rows(const std::vector<std::vector<StepRow>>& by_worker, StepRows& rows);

}  // namespace syncopate
