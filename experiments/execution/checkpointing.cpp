#include "experiments/execution/checkpointing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "results/directory/finished_run.hpp"
#include "results/formats/build_info.hpp"
#include "results/formats/output.hpp"
#include "results/run/results_version.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/models/registry.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/process/blas_kernel.hpp"
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

// What a run starts at is the end of another one, which its configuration only describes.
std::string start_of(const Run& run) {
  if (!run.training.start) return "the model's own";
  const auto hash = [](const std::vector<float>& values) {
    return content_hash({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  };
  return hash(run.training.start->parameters) + hash(run.training.start->buffers);
}

// A commit says what a program computes, unless there are changes to it.
std::string program() {
  const BuildInfo& build = build_info();
  static const std::string changes = build.dirty.value_or(true)
                                         ? " with changes " + content_hash(read_file("/proc/self/exe").value_or(""))
                                         : std::string();
  return fmt::format("Syncopate {} of commit {}{}, results version {}", build.version, build.commit, changes,
                     results_version);
}

}  // namespace

// To go through a simulation of time alone anew takes as long as it took; of waits on the wall clock that is nothing.
bool has_checkpoints(const Run& run, bool mpi) { return run.checkpoint.is_written && (mpi || !run.training.time_only); }

CheckpointIdentity checkpoint_identity(const Run& run) {
  return {{"run", run.hash},
          {"program", program()},
          {"compiler", build_info().compiler + " " + build_info().flags},
          {"LibTorch", torch_is_loaded() ? torch_version() : "none loaded"},
          {"BLAS kernel", torch_is_loaded() ? blas_kernel() : "none loaded"},
          {"start", start_of(run)},
          {"kept model", run.recording.parameters || run.recording.samples ? "the last" : "none"}};
}

RunCheckpoints::RunCheckpoints(const Run& run, const CheckpointUse& use, CourseLog& log, Executor& executor,
                               Recorder& recorder, Progress& progress)
    : run_(run), use_(use), log_(log), executor_(executor), recorder_(recorder) {
  if (use_.is_taken_up && std::filesystem::exists(use_.file)) open(progress);
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

void RunCheckpoints::open(Progress& progress) {
  try {
    auto reader = std::make_unique<CheckpointReader>(use_.file, checkpoint_identity(run_));
    host_s_before_ = take<double>(*reader);
    evaluated_before_ = take_evaluated(*reader);
    log_.replay(*reader);
    reader_ = std::move(reader);
    progress.note(fmt::format("goes on from its checkpoint, which it wrote after {} of this machine's time",
                              clock_text(host_s_before_)));
  } catch (const CheckpointFault& fault) {
    host_s_before_ = 0;
    report(fmt::format("{}; the run begins anew", fault.what()));
  }
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

// Returns once nothing is outstanding, where one is.
bool RunCheckpoints::due() {
  const double part = std::exchange(has_round_ended_, false) ? last_part : 1;
  if (use_.due) {
    if (!use_.due(log_.steps())) return false;
    executor_.wait_all();
    return true;
  }
  const double every_s = run_.checkpoint.every_s;
  const auto steps = static_cast<double>(log_.steps() - last_step_);
  const bool is_looked_at =
      steps >= part * static_cast<double>(looked_at_after_) || seconds(HostClock::now() - last_) >= part * every_s;
  if (!is_looked_at) return false;
  executor_.wait_all();
  const double since_s = seconds(HostClock::now() - last_);
  const bool is_due = since_s >= last_part * every_s;
  const double by_pace = since_s > 0 ? steps * every_s / since_s : 2 * steps;
  looked_at_after_ =
      static_cast<std::int64_t>(is_due ? std::max(1.0, by_pace) : std::max(steps + 1, std::min(by_pace, 2 * steps)));
  return is_due;
}

void RunCheckpoints::write_if_due() {
  const auto begin = HostClock::now();
  if (!due()) return;
  const auto computed = HostClock::now();
  if (recorder_.has_diverged()) return;  // it is about to end
  if (use_.is_mine && !use_.is_mine()) return;
  try {
    wait_for_disk();
    CheckpointCost cost = write();
    cost.tasks_s = seconds(computed - begin);
    cost.written_s = seconds(HostClock::now() - computed);
    if (use_.on_written) use_.on_written(cost);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    if (!std::exchange(has_failed_, true))
      report(fmt::format("there is no newer one, and the run goes on: {}", problem.what()));
  }
  last_ = HostClock::now();
  last_step_ = log_.steps();
}

CheckpointCost RunCheckpoints::write() {
  auto writer = std::make_shared<CheckpointWriter>(use_.file, checkpoint_identity(run_), use_.below);
  put(*writer, host_s_before_ + seconds(HostClock::now() - begin_));
  put(*writer, recorder_.evaluated());
  log_.write_course(*writer);
  log_.write_values(*writer);
  writer->finish();
  on_its_way_ = std::async(std::launch::async, [writer] { writer->publish(); });
  return {.step = log_.steps(), .values = static_cast<std::int64_t>(log_.live_values()), .bytes = writer->bytes()};
}

void RunCheckpoints::wait_for_disk() {
  if (on_its_way_.valid()) on_its_way_.get();
}

void RunCheckpoints::report(const std::string& what) {
  standard_error.write(printable_lines(fmt::format("checkpoint {}: {}", use_.file.string(), what)) + "\n");
}

}  // namespace syncopate
