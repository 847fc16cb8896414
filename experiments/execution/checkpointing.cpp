#include "experiments/execution/checkpointing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "experiments/execution/checkpoint_identity.hpp"
#include "results/directory/disk_fault.hpp"
#include "results/formats/output.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

constexpr double last_part = 0.9;  // of the interval: from then on a round's end will do

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

template <typename Value>
void put(ByteSink& out, const Value& value) {
  static_assert(std::is_trivially_copyable_v<Value>);
  out.write(&value, sizeof(value));
}

template <typename Value>
Value take(ByteSource& in) {
  static_assert(std::is_trivially_copyable_v<Value>);
  Value value{};
  in.read(&value, sizeof(value));
  return value;
}

void put(ByteSink& out, const Recorder::Evaluated& evaluated) {
  put<std::uint64_t>(out, evaluated.entries.size());
  for (const Evaluation& entry : evaluated.entries)
    for (const double number : {entry.test_loss, entry.test_accuracy, entry.train_loss, entry.finite ? 1.0 : 0.0,
                                entry.validation_loss, entry.validation_accuracy})
      put(out, number);
  put<std::uint64_t>(out, evaluated.measurements.size());
  for (const Measurement& measurement : evaluated.measurements) {
    put<std::int64_t>(out, measurement.step.value());
    put<std::int64_t>(out, measurement.time.time_since_epoch().count());
    put<std::uint64_t>(out, measurement.quantity.size());
    out.write(measurement.quantity.data(), measurement.quantity.size());
    put(out, measurement.value);
  }
}

Recorder::Evaluated take_evaluated(ByteSource& in) {
  Recorder::Evaluated evaluated;
  evaluated.entries.resize(take<std::uint64_t>(in));
  for (Evaluation& entry : evaluated.entries) {
    entry.test_loss = take<double>(in);
    entry.test_accuracy = take<double>(in);
    entry.train_loss = take<double>(in);
    entry.finite = take<double>(in) != 0;
    entry.validation_loss = take<double>(in);
    entry.validation_accuracy = take<double>(in);
  }
  evaluated.measurements.resize(take<std::uint64_t>(in));
  for (Measurement& measurement : evaluated.measurements) {
    measurement.step = Step{take<std::int64_t>(in)};
    measurement.time = Time{Duration{take<std::int64_t>(in)}};
    measurement.quantity.resize(take<std::uint64_t>(in));
    in.read(measurement.quantity.data(), measurement.quantity.size());
    measurement.value = take<double>(in);
  }
  return evaluated;
}

}  // namespace

// To go through a simulation of time alone anew takes as long as it took; of waits on the wall clock that is nothing.
bool has_checkpoints(const Run& run, bool mpi) { return run.checkpoint.is_written && (mpi || !run.training.time_only); }

RunCheckpoints::RunCheckpoints(const Run& run, const CheckpointUse& use, CourseLog& log, Executor& executor,
                               Recorder& recorder, DividedWork* divided, Progress& progress)
    : run_(run), use_(use), log_(log), executor_(executor), recorder_(recorder), divided_(divided) {
  if (divided_) parts_.emplace(run_, use_.file, use_.below, *divided_);
  open(progress);
  log_.at_position = [this] { take_up(); };
  log_.between_steps = [this] { write_if_due(); };
}

RunCheckpoints::~RunCheckpoints() {
  log_.at_position = log_.between_steps = nullptr;
  try {
    wait_for_disk();
  } catch (const std::exception&) {  // an interruption
  }
}

// With the entries of a divided run's, so that one tells the other.
CheckpointIdentity RunCheckpoints::own_identity() const {
  return checkpoint_identity(run_, {{"number of processes", "1"}, {"process", "none"}});
}

void RunCheckpoints::open(Progress& progress) {
  std::string problem;
  std::unique_ptr<CheckpointReader> reader;
  try {
    if (parts_)
      reader = parts_->open(use_.is_taken_up, problem);
    else if (use_.is_taken_up && std::filesystem::exists(use_.file))
      reader = std::make_unique<CheckpointReader>(use_.file, own_identity());
    if (reader) {
      host_s_before_ = take<double>(*reader);
      evaluated_before_ = take_evaluated(*reader);
      log_.replay(*reader);
      reader_ = std::move(reader);
      progress.note(fmt::format("goes on from its checkpoint, which it wrote after {} of this machine's time",
                                clock_text(host_s_before_)));
    }
  } catch (const CheckpointFault& fault) {
    if (divided_) throw AnotherCourse(fault.what());  // so that the others hear of it
    problem = fault.what();
    host_s_before_ = 0;
  }
  if (!problem.empty() && is_first()) report(fmt::format("{}; the run begins anew", problem));
}

// In the middle of a program, with what has been submitted so far skipped.
void RunCheckpoints::take_up() {
  if (!recorder_.take_up(evaluated_before_)) throw AnotherCourse("it has evaluated more models, or fewer, than it had");
  try {
    log_.read_values(*reader_);
  } catch (const CheckpointFault& fault) {
    throw AnotherCourse(fault.what());
  }
  reader_ = nullptr;
  evaluated_before_ = {};
  last_ = HostClock::now();
  last_step_ = log_.steps();
}

void RunCheckpoints::check_end() const {
  if (log_.replays()) throw AnotherCourse("it ends before the step that it had come to");
}

// By the clock, too, where one process makes the run.
bool RunCheckpoints::is_looked_at() const {
  const double part = has_round_ended_ ? last_part : 1;
  const auto steps = static_cast<double>(log_.steps() - last_step_);
  return steps >= part * static_cast<double>(looked_at_after_) ||
         (!divided_ && seconds(HostClock::now() - last_) >= part * run_.checkpoint.every_s);
}

// Returns once nothing is outstanding, where one is.
bool RunCheckpoints::due() {
  const bool is_looked_at = use_.due ? use_.due(log_.steps()) : this->is_looked_at();
  has_round_ended_ = false;
  if (!is_looked_at) return false;
  executor_.wait_all();
  if (divided_) divided_->settle();
  if (use_.due) return true;
  const double every_s = run_.checkpoint.every_s, since_s = seconds(HostClock::now() - last_);
  const auto steps = static_cast<double>(log_.steps() - last_step_);
  bool is_due = since_s >= last_part * every_s;
  const double by_pace = since_s > 0 ? steps * every_s / since_s : 2 * steps;
  double next = is_due ? std::max(1.0, by_pace) : std::max(steps + 1, std::min(by_pace, 2 * steps));
  if (divided_) {
    const auto first = ProcessSet::only(0);
    const auto told = divided_->exchanged_numbers(first, [&] { return std::vector{is_due ? 1.0 : 0.0, next}; }).front();
    is_due = told[0] != 0;
    next = told[1];
  }
  looked_at_after_ = static_cast<std::int64_t>(next);
  return is_due;
}

void RunCheckpoints::write_if_due() {
  const auto begin = HostClock::now();
  if (!due()) return;
  const auto computed = HostClock::now();
  if (recorder_.has_diverged()) return;  // it is about to end
  if (use_.is_mine && !use_.is_mine()) return;
  std::optional<CheckpointCost> cost;
  std::string problem;
  try {
    wait_for_disk();
    cost = write();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& fault) {
    problem = disk_problem(fault);
  }
  if (parts_) problem = parts_->publish(log_.steps(), cost ? cost->digest : 0, problem);
  if (!problem.empty()) report_failure(problem);
  if (cost && problem.empty()) {
    cost->tasks_s = seconds(computed - begin);
    cost->written_s = seconds(HostClock::now() - computed);
    if (use_.on_written) use_.on_written(*cost);
  }
  last_ = HostClock::now();
  last_step_ = log_.steps();
}

CheckpointCost RunCheckpoints::write() {
  std::shared_ptr<CheckpointWriter> writer;
  if (parts_)
    writer = parts_->part(log_.steps());
  else
    writer = std::make_shared<CheckpointWriter>(use_.file, own_identity(), use_.below);
  put(*writer, host_s_before_ + seconds(HostClock::now() - begin_));
  put(*writer, recorder_.evaluated());
  log_.write_course(*writer);
  log_.write_values(*writer);
  writer->finish();
  const CheckpointCost cost{.step = log_.steps(),
                            .values = static_cast<std::int64_t>(log_.live_values()),
                            .bytes = writer->bytes(),
                            .digest = writer->digest()};
  if (parts_)
    writer->publish();
  else
    on_its_way_ = std::async(std::launch::async, [writer] { writer->publish(); });
  return cost;
}

void RunCheckpoints::wait_for_disk() {
  if (on_its_way_.valid()) on_its_way_.get();
}

// Once, by one process.
void RunCheckpoints::report_failure(const std::string& why) {
  if (std::exchange(has_failed_, true) || !is_first()) return;
  report(fmt::format("there is no newer one, and the run goes on: {}", why));
}

void RunCheckpoints::report(const std::string& what) const {
  standard_error.write(printable_lines(fmt::format("checkpoint {}: {}", use_.file.string(), what)) + "\n");
}

}  // namespace syncopate
