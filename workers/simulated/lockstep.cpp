// Time-only runs of methods whose workers act alike: between two collectives no worker decides anything by its own
// clock, rank or gradients. Then one program, worker 0's, runs for all workers ("in lockstep"), and the workers' times
// are arrays. Results equal those of SimulatedCluster to the nanosecond; tests check this. A worker's step costs little
// more than its random numbers. SimulatedCluster instead switches to a fiber per worker, whose memory is in neither L1
// nor L2 if there are thousands. A call acts for all workers:
// - compute_gradients: each worker takes its own time.
// - compute_gradient with a deadline: a worker that the deadline stops computes nothing until the next collective. Each
//   other worker takes its own time. The call returns a gradient if any worker has computed one. So a program's loop
//   that ends at the first missing gradient ends when all workers are stopped.
// - collectives: each worker contributes the micro-batches that it has computed since the last collective.
#include <fmt/format.h>

#include <stdexcept>

#include "workers/base/machine.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {

namespace {

// Thrown to end the run on fibers after worker 0 has run its program to the end for all workers.
struct WentOnInLockstep {};

Rank rank_at(std::size_t place) { return Rank{static_cast<int>(place)}; }

// LockstepCluster::add_times for a deadline that discards running micro-batches, `limit` nanoseconds after the end of
// the last collective. This is the inner loop of DropCompute. It has no branches, so that it is vectorised.
SYNCOPATE_VECTOR_CLONES
bool add_until(std::int64_t limit, std::size_t workers, const Duration* times, Duration* spent, Duration* discarded,
               std::int64_t* computed, std::int64_t* stopped) {
  std::int64_t kept_by_any = 0;
  for (std::size_t i = 0; i < workers; ++i) {
    const std::int64_t start = spent[i].count(), end = start + times[i].count();
    const std::int64_t is_going = 1 - stopped[i], kept = end < limit ? is_going : 0;
    const std::int64_t stops_at = start < limit && is_going ? limit : start;
    spent[i] = Duration{kept ? end : stops_at};
    discarded[i] += Duration{kept ? 0 : stops_at - start};
    computed[i] += kept;
    stopped[i] = 1 - kept;
    kept_by_any |= kept;
  }

  return kept_by_any != 0;
}

class LockstepCluster : public Cluster {
 public:
  // True for time-only runs without servers, a record, outages, pauses, recorded times that can run out, and times that
  // depend on samples. Shared links are allowed, because they do not affect collectives of all workers.
  static bool can_simulate(const SimulatedOptions& options) {
    return options.training.time_only() && options.servers == 0 && !options.record && !options.outages &&
           !options.pauses && !options.compute_time.can_run_out() && !options.compute_time.follows_samples();
  }

  explicit LockstepCluster(const SimulatedOptions& options)
      : LockstepCluster(options, {.rows = StepRows(options.observer)}) {}
  // `so_far`: the state of another cluster at the end of a collective, from which this one continues.
  LockstepCluster(const SimulatedOptions& options, ProgressSoFar so_far)
      : options_(options),
        so_far_(std::move(so_far)),
        spent_(size()),
        is_stopped_(size()),
        is_lost_(options.workers),
        computed_(size()),
        last_micro_batch_(options.network.overlap() ? size() : 0),
        busy_(size()),
        discarded_(size()),
        kept_(size()) {}

  int workers() const override { return options_.workers; }
  Servers servers() const override { return 0; }
  RunTotals run(const Program& work, const Program&) override {
    work(Rank{0});
    return totals();
  }
  RunTotals totals() const {
    const Duration since = *std::ranges::max_element(spent_);
    RunTotals totals;
    totals.end = so_far_.end + since;
    totals.bytes = so_far_.bytes;
    totals.collectives = so_far_.collectives;
    for (const Rank worker : Ranks(options_.workers)) {
      const Book book = book_of(worker, since);
      totals.add(book.account_at(book.now(), {}, DecidedBy::workers), book.tally(), DecidedBy::workers);
    }
    return totals;
  }

  Time now(Rank) const override { return so_far_.end + spent_.front(); }
  int workers_left(Rank) override { return options_.workers; }
  bool has_left(Rank, Rank) const override { return false; }
  std::optional<Gradient> compute_gradient(Rank, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    if (deadline.at_message) fail_for_unlike("compute_gradient until a message");
    throw_if_interrupted();
    const bool is_drawn = drawn_.step == slot.step && slot.index >= drawn_.first && slot.index < drawn_.end();
    if (!is_drawn) draw(slot);
    const auto times = drawn_.of(slot.index, size());
    const Duration limit = deadline.at - so_far_.end;
    const bool ends = deadline.at != never && limit < longest_duration;
    const bool is_plain = ends && deadline.preempt == Preempt::discard;
    const bool is_kept_by_any = is_plain ? add_until(limit.count(), size(), times.data(), spent_.data(),
                                                     discarded_.data(), computed_.data(), is_stopped_.data())
                                         : add_times(deadline, times);
    const bool ends_step = slot.index + 1 >= options_.micro_batches;
    for (std::size_t i = 0; i < last_micro_batch_.size(); ++i)
      last_micro_batch_[i] = ends_step && !is_stopped_[i] ? times[i] : Duration{};
    if (!is_kept_by_any) return std::nullopt;
    return Gradient(at, samples, {});
  }

  Gradient compute_gradients(Rank, const ModelStatePtr& at, const MicroBatch& first, int count) override {
    throw_if_interrupted();
    const Duration room = never - so_far_.end;
    const auto length = static_cast<std::size_t>(count);
    draw_rows(first, count, [&](std::size_t begin, std::size_t workers, std::span<const Duration> rows) {
      for (std::size_t i = 0; i < workers; ++i) {
        const auto row = rows.subspan(i * length, length);
        const Duration time = sum_of(row);
        Duration& spent = spent_[begin + i];
        spent = time > room - spent ? room : spent + time;
        // If only the sum exceeds the clock's range, each single micro-batch still ends, and the worker is not lost.
        if (!last_micro_batch_.empty())
          last_micro_batch_[begin + i] = first.index + count >= options_.micro_batches ? row.back() : Duration{};
        if (time >= longest_duration && std::ranges::max(row) >= longest_duration)
          is_lost_[rank_at(begin + i)] = any_lost_ = true;
      }
    });
    if (!any_lost_) check_clock();
    computed_by_all_ += count;
    return Gradient(at, first, count, {});
  }

  // Nothing may be computed between start and finish, because a worker that computes there acts by its own clock.
  StartedCollective start(Rank, Collective&& what, const Contribution& contribution, Place place) override {
    using Kind = Collective::Kind;
    if (!what.numbers.empty() || what.kind == Kind::all_gather)
      fail_for_unlike("collectives with numbers of their own");
    if (what.kind == Kind::partial_all_reduce) fail_for_unlike(place.operation);
    if (what.group_size) fail_for_unlike("average in groups");
    if (started_) fail_for_unlike("two collectives under way");
    const AgreedProgress agreement = meet(what, what.is_first_exchange() ? nullptr : &contribution, place);
    started_ = {.gradient = std::move(what.gradient), .model = nullptr, .agreement = agreement};
    started_->gradient.mark_reduced();
    return {what.kind, std::nullopt, so_far_.collectives, contribution.step};
  }

  CollectiveResult finish(Rank, StartedCollective&&, Place) override {
    if (!started_ || spent_.front() > Duration{}) fail_for_unlike("finish with work since the start");
    return *std::exchange(started_, std::nullopt);
  }
  Bytes bytes_sent() const override { return so_far_.bytes; }

  // Methods whose workers act alike do not call the following functions, which throw std::logic_error.
  bool has_ended(Rank, const StartedCollective&, Place place) override { fail_for_unlike(place.operation); }
  void report_steps(Rank, const Contribution&) override { fail_for_unlike("report_steps"); }
  void send(Rank, Rank, Message&&, Place place) override { fail_for_unlike(place.operation); }
  ReceivedMessage receive(Rank, std::optional<Rank>, Time, Place place) override { fail_for_unlike(place.operation); }
  void discard(Rank, const BookedTime&) override { fail_for_unlike("discard"); }
  void keep(Rank, const BookedTime&, Step) override { fail_for_unlike("keep"); }

 private:
  // Durations of consecutive micro-batches of one step: times[m * workers + i] is micro-batch first + m of worker i.
  struct Drawn {
    Step step{-1};
    int first = 0;
    int count = 0;
    std::vector<Duration> times;
    int end() const { return first + count; }
    std::span<const Duration> of(int micro_batch, std::size_t workers) const {
      return std::span(times).subspan(static_cast<std::size_t>(micro_batch - first) * workers, workers);
    }
  };

  std::size_t size() const { return static_cast<std::size_t>(options_.workers); }

  // Calls `take(begin, workers, rows)` for consecutive blocks of workers. `rows` has one row per worker: the durations
  // of micro-batches first.index .. first.index + count - 1.
  template <typename Take>
  void draw_rows(const MicroBatch& first, int count, const Take& take) {
    const auto length = static_cast<std::size_t>(count);
    // A block of many rows is drawn by one call, which is faster. Long rows need fewer rows per call.
    constexpr std::size_t most_rows = 32, most_durations = 1 << 20;
    const std::size_t most = std::clamp(most_durations / std::max<std::size_t>(length, 1), std::size_t{1}, most_rows);
    drawn_rows_.resize(most * length);
    for (std::size_t begin = 0; begin < size(); begin += most) {
      const std::size_t workers = std::min(most, size() - begin);
      const std::span<Duration> rows(drawn_rows_.data(), workers * length);
      options_.compute_time.durations({.worker = rank_at(begin), .step = first.step, .count = workers},
                                      static_cast<std::uint32_t>(first.index), rows);
      take(begin, workers, rows);
    }
  }

  // Draws, for all workers, the micro-batches from `first` to the end of a step of `micro_batches`.
  void draw(const MicroBatch& first) {
    constexpr int most_ahead = 64;
    drawn_.step = first.step;
    drawn_.first = first.index;
    drawn_.count = std::clamp(options_.micro_batches - first.index, 1, most_ahead);
    const auto count = static_cast<std::size_t>(drawn_.count);
    drawn_.times.resize(count * size());
    draw_rows(first, drawn_.count, [&](std::size_t begin, std::size_t workers, std::span<const Duration> rows) {
      for (std::size_t m = 0; m < count; ++m)
        for (std::size_t i = 0; i < workers; ++i) drawn_.times[m * size() + begin + i] = rows[i * count + m];
    });
  }

  // Adds the micro-batch's time to each worker that is not stopped. Returns whether any worker has finished it.
  bool add_times(const Deadline& deadline, std::span<const Duration> times) {
    bool is_computed = false;
    for (std::size_t i = 0; i < size(); ++i) {
      if (is_stopped_[i]) continue;
      const Time start = so_far_.end + spent_[i];
      const MicroBatchEnd end = end_of_micro_batch(start, times[i], deadline);
      const Duration taken = end.at - start;
      spent_[i] += taken;
      computed_[i] += end.kept;
      is_computed |= end.kept;
      if (end.kept && taken < longest_duration) continue;
      is_stopped_[i] = 1;
      discarded_[i] += taken;
      if (taken >= longest_duration) is_lost_[rank_at(i)] = any_lost_ = true;
    }
    if (!any_lost_) check_clock();
    return is_computed;
  }

  // `part`: each worker's contribution. Null: nothing is booked, and computed micro-batches count at the next
  // collective.
  AgreedProgress meet(const Collective& what, const Contribution* part, const Place& place) {
    if (any_lost_) fail_for_lost(place);
    const CollectiveCall call{.operation = properties_of(what.kind).operation,
                              .members = options_.workers,
                              .payload = payload_of(what, options_.training, options_.workers),
                              .number = so_far_.collectives++};
    const Duration until_arrival = *std::ranges::max_element(spent_);
    const Time end = end_of(what, call, so_far_.end + until_arrival);
    if (end == never) throw RunFailure(explain_end_of_clock("the cluster"));
    until_arrivals_ += until_arrival;
    communicating_ += end - (so_far_.end + until_arrival);
    for (std::size_t i = 0; i < size(); ++i) busy_[i] += spent_[i];
    std::ranges::fill(spent_, Duration{});
    std::ranges::fill(is_stopped_, 0);
    so_far_.end = end;
    so_far_.bytes += collective_bytes(call);
    StepRow row;
    if (part) book(*part, row);
    so_far_.rows.close(what.kind, row, end, so_far_.bytes);
    return {.time = end, .micro_batches = so_far_.kept, .bytes = so_far_.bytes};
  }

  Time end_of(const Collective& what, const CollectiveCall& call, Time last_arrival) {
    const auto overlap = options_.network.overlap();
    if (!overlap || what.kind != Collective::Kind::all_reduce || call.members == 1)
      return later(last_arrival, options_.network.collective(call));
    BucketArrivals buckets;
    for (std::size_t i = 0; i < size(); ++i) buckets.arrive(*overlap, so_far_.end + spent_[i], last_micro_batch_[i]);
    std::ranges::fill(last_micro_batch_, Duration{});
    return buckets.end(options_.network, call, so_far_.end);
  }

  void book(const Contribution& part, StepRow& row) {
    std::int64_t kept_by_all = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      const std::int64_t kept = computed_by_all_ + computed_[i];
      kept_[i] += kept;
      kept_by_all += kept;
    }
    planned_ += part.planned;
    row.add(
        {.kept = kept_by_all, .planned = options_.workers * part.planned, .step = part.step, .period = part.period});
    so_far_.kept += kept_by_all;
    computed_by_all_ = 0;
    std::ranges::fill(computed_, 0);
  }

  // Passes each activity's total time in one piece, because only totals are known, not their order.
  Book book_of(Rank worker, Duration since_meeting) const {
    const auto i = static_cast<std::size_t>(worker.value);
    const Duration busy = busy_[i] + spent_[i];
    Book book = so_far_.books.empty() ? Book(worker, start_time, nullptr) : so_far_.books[worker];
    book.pass(Activity::compute, book.now() + busy, {});
    book.pass(Activity::wait, book.now() + (until_arrivals_ + since_meeting - busy), {});
    book.pass(Activity::communicate, book.now() + communicating_, {});
    book.lose(discarded_[i]);
    StepRow all_rows;  // a scratch row: the run's rows are already closed
    book.contribute({.kept = kept_[i], .planned = planned_}, all_rows);
    return book;
  }

  void check_clock() const {
    const auto latest = std::ranges::max_element(spent_);
    if (*latest >= never - so_far_.end)
      throw RunFailure(explain_end_of_clock(fmt::format("worker {}", latest - spent_.begin())));
  }

  [[noreturn]] static void fail_for_unlike(const char* operation) {
    throw std::logic_error(
        fmt::format("{} is not supported in lockstep: the method's traits say that its workers act alike", operation));
  }
  [[noreturn]] void fail_for_lost(const Place& place) const {
    const Place lost_in{.operation = "a micro-batch that never ends", .at = SourceLine::current()};
    Deadlock deadlock{.at = so_far_.end, .after_loss = true};
    for (const Rank worker : Ranks(options_.workers))
      deadlock.workers_by_state[what_it_waits_for(is_lost_[worker] ? &lost_in : &place)].push_back(worker.value);
    throw RunFailure(explain(deadlock));
  }

  SimulatedOptions options_;
  // At the end of the last collective, when all workers' clocks are equal. The books are those of the cluster that this
  // one continues.
  ProgressSoFar so_far_;
  // The following arrays become books only at the end of the run. A step processes arrays with vector instructions, and
  // the books of thousands of workers would not fit the caches. By worker, since the last collective:
  std::vector<Duration> spent_;
  std::vector<std::int64_t> is_stopped_;  // 1: stopped by a deadline; 0: not stopped
  ByRank<char> is_lost_;                  // 1: in a micro-batch that never ends
  std::vector<std::int64_t> computed_;    // micro-batches to book, in addition to computed_by_all_
  std::int64_t computed_by_all_ = 0;
  // For exchanges that overlap the backward pass: duration of the step's last micro-batch, 0 if the worker was stopped.
  // Empty without overlap.
  std::vector<Duration> last_micro_batch_;
  bool any_lost_ = false;
  // By worker, since this cluster began:
  std::vector<Duration> busy_;  // until the last collective
  std::vector<Duration> discarded_;
  std::vector<std::int64_t> kept_;
  std::int64_t planned_ = 0;   // per worker
  Duration until_arrivals_{};  // total over the collectives: from the end of the previous one to the last arrival
  Duration communicating_{};
  std::optional<CollectiveResult> started_;
  Drawn drawn_;
  std::vector<Duration> drawn_rows_;  // scratch
};

// Time-only runs of methods whose workers act alike only after step `alike_from`, such as DropCompute once it has found
// its threshold. They run on fibers until the first collective of a later step ends, then in lockstep.
class FibersThenLockstep : public Cluster {
 public:
  FibersThenLockstep(const SimulatedOptions& options, Step alike_from)
      : options_(options), alike_from_(alike_from), fibers_(options) {}

  RunTotals run(const Program& work, const Program& serve) override {
    const Program ends_for_all = [this, &work](Rank rank) {
      work(rank);
      if (lockstep_) throw WentOnInLockstep();
    };
    try {
      return fibers_.run(ends_for_all, serve);
    } catch (const WentOnInLockstep&) {
      return lockstep_->totals();
    }
  }

  CollectiveResult finish(Rank self, StartedCollective&& started, Place place) override {
    const Step step = started.group ? Step{0} : started.step;
    CollectiveResult result = current_->finish(self, std::move(started), place);
    go_on_in_lockstep_after(self, step);
    return result;
  }

  AgreedProgress all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                const Contribution& contribution, Place place) override {
    const AgreedProgress agreement = current_->all_reduce_sum(self, gradient, numbers, contribution, place);
    go_on_in_lockstep_after(self, contribution.step);
    return agreement;
  }

  // All other calls go to the current cluster. There are neither outages nor pauses (LockstepCluster::can_simulate).
  int workers() const override { return current_->workers(); }
  Servers servers() const override { return current_->servers(); }
  Time now(Rank self) const override { return current_->now(self); }
  int workers_left(Rank self) override { return current_->workers_left(self); }
  bool has_left(Rank self, Rank worker) const override { return current_->has_left(self, worker); }

  std::optional<Gradient> compute_gradient(Rank self, const ModelStatePtr& at, const MicroBatch& slot,
                                           const MicroBatch& samples, const Deadline& deadline) override {
    return current_->compute_gradient(self, at, slot, samples, deadline);
  }
  Gradient compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) override {
    return current_->compute_gradients(self, at, first, count);
  }
  StartedCollective start(Rank self, Collective&& what, const Contribution& contribution, Place place) override {
    return current_->start(self, std::move(what), contribution, place);
  }
  bool has_ended(Rank self, const StartedCollective& started, Place place) override {
    return current_->has_ended(self, started, place);
  }
  void report_steps(Rank self, const Contribution& contribution) override {
    current_->report_steps(self, contribution);
  }
  void send(Rank self, Rank to, Message&& message, Place place) override {
    current_->send(self, to, std::move(message), place);
  }
  ReceivedMessage receive(Rank self, std::optional<Rank> from, Time until, Place place) override {
    return current_->receive(self, from, until, place);
  }
  void discard(Rank self, const BookedTime& work) override { current_->discard(self, work); }
  void keep(Rank self, const BookedTime& work, Step staleness) override { current_->keep(self, work, staleness); }
  Bytes bytes_sent() const override { return current_->bytes_sent(); }

 private:
  // Worker 0 is the first to leave a collective. It never waits again, so the other fibers stay suspended.
  void go_on_in_lockstep_after(Rank self, Step step) {
    if (!lockstep_ && self == Rank{0} && step > alike_from_)
      current_ = &lockstep_.emplace(options_, fibers_.progress());
  }

  SimulatedOptions options_;
  Step alike_from_;
  std::optional<LockstepCluster> lockstep_;
  Cluster* current_ = &fibers_;
  SimulatedCluster fibers_;  // destroyed first: its fibers may still be in calls
};

// A lower bound of the memory of a run's workers, including their part of the results. Measured per worker: 470 bytes
// in lockstep, and 6,600 on fibers with stacks of their own (mostly stack pages). On a shared stack: 2,900 with
// asynchronous SGD and 3,700 with D-PSGD.
std::int64_t least_bytes_of_workers(const SimulatedOptions& options, std::optional<Step> alike_from) {
  constexpr std::int64_t bytes_in_lockstep = 250, bytes_on_shared_stack = 2000, bytes_on_own_stack = 5000;
  const bool in_lockstep = alike_from == Step{0} && LockstepCluster::can_simulate(options);
  if (in_lockstep) return options.workers * bytes_in_lockstep;
  const bool have_own_stacks = static_cast<std::size_t>(options.workers) <= options.most_own_stacks;
  return options.workers * (have_own_stacks ? bytes_on_own_stack : bytes_on_shared_stack);
}

}  // namespace

std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedOptions& options, std::optional<Step> alike_from) {
  const std::int64_t needed = least_bytes_of_workers(options, alike_from), free = free_memory_bytes();
  if (needed > free)
    throw RunFailure(
        fmt::format("the memory does not suffice: {} simulated workers take at least {:.3g} GB, {} bytes "
                    "each; {:.3g} GB are free",
                    options.workers, 1e-9 * static_cast<double>(needed), needed / options.workers,
                    1e-9 * static_cast<double>(free)));
  if (!alike_from || !LockstepCluster::can_simulate(options)) return std::make_unique<SimulatedCluster>(options);
  if (*alike_from == Step{0}) return std::make_unique<LockstepCluster>(options);
  return std::make_unique<FibersThenLockstep>(options, *alike_from);
}

}  // namespace syncopate
