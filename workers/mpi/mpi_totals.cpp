#include "workers/mpi/mpi_totals.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "workers/mpi/worker_steps.hpp"

namespace syncopate {
namespace {

// Sums (or maxima) over all ranks, politely. Calls `meanwhile` as long as it waits.
template <typename Meanwhile>
void reduce_politely(std::vector<std::int64_t>& values, MPI_Op operation, const MpiCommunicators& communicators,
                     Meanwhile meanwhile) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_INT64_T, operation,
                 communicators.everyone(), &request);
  wait_politely(communicators.cores_suffice(), [&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) meanwhile();
    return done != 0;
  });
}

std::int64_t since_start(Time time) { return time.time_since_epoch().count(); }

}  // namespace

void MpiTotals::keep(const Work& work, Step staleness) {
  const auto steps = static_cast<std::size_t>(std::max<Step::Rep>(staleness.value(), 0));
  if (staleness_.size() <= steps) staleness_.resize(steps + 1);
  ++staleness_[steps];
  stage_.book_of(work.worker).keep(work);
}

void MpiTotals::report_steps(const Contribution& contribution) {
  stage_.clock.book(Activity::compute);
  if (own_steps_.empty() || own_steps_.back().step != contribution.step) own_steps_.emplace_back();
  StepRow& row = own_steps_.back();
  stage_.clock.book().contribute(contribution, row);
  row.end = stage_.clock.booked();
  row.bytes = mail_.bytes_to_and_fro();
}

// T: the end of the servers, or of the last worker. Where rounds do not wait for everybody, it is the
// last time that workers have met: who computes beyond has run ahead with what came too late.
Time MpiTotals::agree_on_end(Time own_end, std::size_t& staleness_size) {
  std::vector<std::int64_t> most = {stage_.is_server() ? since_start(own_end) : 0,
                                    stage_.is_worker() ? since_start(own_end) : 0,
                                    stage_.is_worker() ? since_start(stage_.clock.met_at()) : 0,
                                    stage_.has_partial_sums ? 1 : 0, static_cast<std::int64_t>(staleness_.size())};
  // Idle ranks wait here for the whole run.
  waiting_.begin();
  const char* const state = stage_.is_worker() || stage_.is_server() ? nullptr : "needed by no method of this run";
  reduce_politely(most, MPI_MAX, stage_.communicators,
                  [&] { waiting_.look_for_standstill({.state = state, .what = WaitReport::For::the_end}); });
  rounds_.finish(stage_.communicators.everyone(), stage_.communicators.cores_suffice());
  staleness_size = static_cast<std::size_t>(most[4]);
  const bool has_partial_rounds = most[3] > 0;
  return Time{Duration{stage_.options.servers > 0 ? most[0] : has_partial_rounds ? most[2] : most[1]}};
}

RunTotals MpiTotals::add_up(Time own_end) {
  std::size_t staleness_size = 0;
  const Time end = agree_on_end(own_end, staleness_size);
  const Duration cut = stage_.clock.close(end);
  if (stage_.is_worker()) cut_time_ = cut;
  std::vector<std::int64_t> sums = own_sums(staleness_size);
  reduce_politely(sums, MPI_SUM, stage_.communicators, [] {});
  RunTotals totals = read_totals(sums, staleness_size);
  totals.end = end;
  report_rows();
  return totals;
}

std::vector<std::int64_t> MpiTotals::own_sums(std::size_t staleness_size) {
  std::vector<std::int64_t> sums;
  for (const Rank worker : Ranks(stage_.options.workers)) {
    const bool is_own = worker == stage_.self;
    Tally tally = stage_.book_of(worker).tally();
    tally += partial_sums_.tally_of(worker);
    const MpiMicroBatches::Emulation emulation = is_own ? micro_batches_.emulation() : MpiMicroBatches::Emulation();
    for (const Duration time : (is_own ? stage_.clock.book().account() : Account()).time) sums.push_back(time.count());
    for (const std::int64_t number : tally.numbers()) sums.push_back(number);
    sums.insert(sums.end(), {emulation.emulated, emulation.overruns, emulation.overrun_excess.count(),
                             is_own ? cut_time_.count() : 0});
  }
  const Bytes collective_bytes = stage_.self.value == 0 ? stage_.collective_bytes : Bytes{0};
  sums.insert(sums.end(), {(mail_.counted_bytes() + collective_bytes).value(), stage_.collectives, mail_.messages()});
  staleness_.resize(staleness_size);
  sums.insert(sums.end(), staleness_.begin(), staleness_.end());
  return sums;
}

RunTotals MpiTotals::read_totals(std::span<const std::int64_t> sums, std::size_t staleness_size) const {
  RunTotals totals;
  auto next = sums.begin();
  for (int worker = 0; worker < stage_.options.workers; ++worker) {
    Account account;
    for (Duration& time : account.time) time = Duration{*next++};
    Tally::Numbers numbers;
    for (std::int64_t& number : numbers) number = *next++;
    const Tally tally = Tally::of(numbers);
    totals.emulated.push_back(*next++);
    totals.overruns.push_back(*next++);
    totals.overrun_excess += Duration{*next++};
    const Duration cut_time{*next++};
    // As far as it lies within the run.
    const Duration lost = tally.lost_time(stage_.decided_by()) - cut_time;
    account.lose(std::clamp(lost, Duration{0}, account[Activity::compute]));
    totals.add(account, tally, stage_.decided_by());
  }
  totals.bytes = Bytes{*next++};
  totals.collectives = *next++;
  totals.messages = *next++;
  totals.staleness.assign(next, next + static_cast<std::ptrdiff_t>(staleness_size));
  return totals;
}

// The first server's rank books rounds, or worker 0 where there is none.
void MpiTotals::report_rows() {
  const int booking_rank = stage_.options.servers > 0 ? stage_.options.workers : 0;
  const MPI_Comm everyone = stage_.communicators.everyone();
  int ranks = 0;
  MPI_Comm_size(everyone, &ranks);
  const int own_bytes = static_cast<int>(own_steps_.size() * sizeof(StepRow));
  std::vector<int> bytes(static_cast<std::size_t>(ranks)), begin(static_cast<std::size_t>(ranks));
  MPI_Gather(&own_bytes, 1, MPI_INT, bytes.data(), 1, MPI_INT, booking_rank, everyone);
  std::exclusive_scan(bytes.begin(), bytes.end(), begin.begin(), 0);
  std::vector<StepRow> all(static_cast<std::size_t>(begin.back() + bytes.back()) / sizeof(StepRow));
  MPI_Gatherv(own_steps_.data(), own_bytes, MPI_BYTE, all.data(), bytes.data(), begin.data(), MPI_BYTE, booking_rank,
              everyone);
  if (stage_.self.value != booking_rank || !stage_.options.observer) return;
  std::vector<std::vector<StepRow>> by_worker;
  auto next = all.begin();
  for (int worker = 0; worker < stage_.options.workers; ++worker) {
    const auto count = static_cast<std::ptrdiff_t>(bytes[static_cast<std::size_t>(worker)]) /
                       static_cast<std::ptrdiff_t>(sizeof(StepRow));
    by_worker.emplace_back(next, next + count);
    next += count;
  }
  close_rows(by_worker, stage_.rows);
}

}  // namespace syncopate
