#include "experiments/execution/checkpointing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "results/directory/disk_fault.hpp"
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

constexpr int no_process = -1;  // of what is common to all
constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();
constexpr std::chrono::seconds patience{2};  // with a file system of several machines, once
constexpr const char* is_it_one = "is the results directory one for all?";
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

// It is on another machine's disk already.
bool comes_to_be_there(const std::filesystem::path& file, std::chrono::seconds patience) {
  std::error_code none;
  for (const auto end = std::chrono::steady_clock::now() + patience; !std::filesystem::exists(file, none);
       std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

// What a run starts at is the end of another one, which its configuration only describes.
std::string start_of(const Run& run) {
  if (!run.training.start) return "the model's own";
  const auto hash = [](const std::vector<float>& values) {
    return content_hash({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  };
  return hash(run.training.start->parameters) + hash(run.training.start->buffers);
}

// Numbers that processes tell each other: some, and a text behind them.
DividedWork::Numbers with_text(DividedWork::Numbers numbers, const std::string& text) {
  numbers.insert(numbers.end(), text.begin(), text.end());
  return numbers;
}

std::string text_behind(const DividedWork::Numbers& told, std::ptrdiff_t numbers) {
  return {told.begin() + numbers, told.end()};
}

// Of the first process that has one behind its numbers, with its name; empty: nobody has.
std::string first_problem(const std::vector<DividedWork::Numbers>& told, std::ptrdiff_t numbers) {
  std::vector<std::string> texts;
  for (const auto& of_one : told) texts.push_back(text_behind(of_one, numbers));
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  if (first == texts.end()) return {};
  const bool is_of_all = std::ranges::all_of(texts, [&](const std::string& text) { return text == *first; });
  return is_of_all ? *first : fmt::format("process {}: {}", first - texts.begin(), *first);
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

CheckpointIdentity checkpoint_identity(const Run& run, bool is_common) {
  CheckpointIdentity identity{{"run", run.hash},
                              {"program", program()},
                              {"compiler", build_info().compiler + " " + build_info().flags},
                              {"LibTorch", torch_is_loaded() ? torch_version() : "none loaded"},
                              {"start", start_of(run)},
                              {"kept model", run.recording.parameters || run.recording.samples ? "the last" : "none"}};
  if (!is_common) identity.emplace_back("BLAS kernel", torch_is_loaded() ? blas_kernel() : "none loaded");
  return identity;
}

RunCheckpoints::RunCheckpoints(const Run& run, const CheckpointUse& use, CourseLog& log, Executor& executor,
                               Recorder& recorder, DividedWork* divided, Progress& progress)
    : run_(run), use_(use), log_(log), executor_(executor), recorder_(recorder), divided_(divided) {
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

CheckpointIdentity RunCheckpoints::identity(int process) const {
  CheckpointIdentity identity = checkpoint_identity(run_, divided_ && process == no_process);
  identity.emplace_back("number of processes", fmt::format("{}", divided_ ? divided_->processes() : 1));
  identity.emplace_back("process", process == no_process ? "none" : fmt::format("{}", process));
  return identity;
}

void RunCheckpoints::open(Progress& progress) {
  std::string problem;
  Parts parts;
  std::unique_ptr<CheckpointReader> reader;
  try {
    if (use_.is_taken_up && std::filesystem::exists(use_.file))
      reader = divided_ ? open_part(parts) : std::make_unique<CheckpointReader>(use_.file, identity(no_process));
  } catch (const CheckpointFault& fault) {
    problem = fault.what();
  }
  if (divided_) {
    problem = problem_of_all(parts.number, problem);
    if (!problem.empty()) reader = nullptr;
    if (!reader) parts.number = 0;
    remove_others(parts.number);
  }
  try {
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

std::unique_ptr<CheckpointReader> RunCheckpoints::open_part(Parts& parts) const {
  CheckpointReader common(use_.file, identity(no_process));
  parts.number = take<std::int64_t>(common);
  for (int process = 0; process < divided_->processes(); ++process)
    parts.digests.push_back(take<std::uint64_t>(common));
  const int self = divided_->self();
  const auto part = part_of_checkpoint(use_.file, parts.number, self);
  std::error_code none;
  if (!std::filesystem::exists(part, none)) throw CheckpointFault("its part is not there");
  auto reader = std::make_unique<CheckpointReader>(part, identity(self));
  if (reader->digest() != parts.digests[static_cast<std::size_t>(self)])
    throw CheckpointFault("its part is of another one");
  return reader;
}

// Called by all, and the same on all: why they do not go on from one; empty: they do, or none of them finds any.
// `number`: which one this process finds; 0: none.
std::string RunCheckpoints::problem_of_all(std::int64_t number, const std::string& own) const {
  const auto told =
      divided_->exchanged_numbers(divided_->all(), [&] { return with_text({static_cast<double>(number)}, own); });
  const std::string problem = first_problem(told, 1);
  if (!problem.empty()) return problem;
  const bool find_the_same = std::ranges::all_of(told, [&](const auto& of_one) { return of_one == told.front(); });
  return find_the_same ? "" : fmt::format("some processes do not find it: {}", is_it_one);
}

// Called by all: no part of another attempt is taken for one of this. Each does it, where their directories are not one.
void RunCheckpoints::remove_others(std::int64_t number) const {
  if (number == 0) remove_checkpoint(use_.file);
  remove_parts(use_.file, any_number, number);
  divided_->exchanged_numbers(divided_->all(), [] { return DividedWork::Numbers{0}; });
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
  if (divided_) problem = publish_parts(log_.steps(), cost ? cost->digest : 0, problem);
  if (!problem.empty()) report_failure(problem);
  if (cost) {
    cost->tasks_s = seconds(computed - begin);
    cost->written_s = seconds(HostClock::now() - computed);
    if (use_.on_written) use_.on_written(*cost);
  }
  last_ = HostClock::now();
  last_step_ = log_.steps();
}

CheckpointCost RunCheckpoints::write() {
  const int self = divided_ ? divided_->self() : no_process;
  if (!is_first() && !use_.below.empty() && !std::filesystem::exists(use_.below))
    throw std::runtime_error(fmt::format("{} is not there: {}", use_.below.string(), is_it_one));
  const auto file = divided_ ? part_of_checkpoint(use_.file, log_.steps(), self) : use_.file;
  auto writer = std::make_shared<CheckpointWriter>(file, identity(self), use_.below);
  put(*writer, host_s_before_ + seconds(HostClock::now() - begin_));
  put(*writer, recorder_.evaluated());
  log_.write_course(*writer);
  log_.write_values(*writer);
  writer->finish();
  const CheckpointCost cost{.step = log_.steps(),
                            .values = static_cast<std::int64_t>(log_.live_values()),
                            .bytes = writer->bytes(),
                            .digest = writer->digest()};
  if (divided_)
    writer->publish();
  else
    on_its_way_ = std::async(std::launch::async, [writer] { writer->publish(); });
  return cost;
}

// Called by all: by who has no part, too; returns the same on all: why there is none. A part that nothing names goes.
std::string RunCheckpoints::publish_parts(std::int64_t number, std::uint64_t digest, const std::string& own) {
  constexpr int half = 32;
  constexpr std::uint64_t low = 0xffffffff;  // a number holds 53 bits
  const auto told = divided_->exchanged_numbers(divided_->all(), [&] {
    return with_text({static_cast<double>(digest >> half), static_cast<double>(digest & low)}, own);
  });
  std::string problem = first_problem(told, 2);
  if (problem.empty()) {
    std::vector<std::uint64_t> digests;
    for (const auto& of_one : told)
      digests.push_back((static_cast<std::uint64_t>(of_one[0]) << half) | static_cast<std::uint64_t>(of_one[1]));
    const auto named = divided_->exchanged_numbers(
        ProcessSet::only(0), [&] { return with_text({}, name_parts({.number = number, .digests = digests})); });
    problem = text_behind(named.front(), 0);
  }
  std::error_code ignored;
  if (!problem.empty()) std::filesystem::remove(part_of_checkpoint(use_.file, number, divided_->self()), ignored);
  return problem;
}

// Parts of an older one go once nothing names them.
std::string RunCheckpoints::name_parts(const Parts& parts) const {
  try {
    for (int process = 0; process < divided_->processes(); ++process)
      if (!comes_to_be_there(part_of_checkpoint(use_.file, parts.number, process),
                             has_failed_ ? std::chrono::seconds(0) : patience))
        return fmt::format("the part of process {} is not to be seen by process 0: {}", process, is_it_one);
    CheckpointWriter writer(use_.file, identity(no_process), use_.below);
    put(writer, parts.number);
    for (const std::uint64_t digest : parts.digests) put(writer, digest);
    writer.finish();
    writer.publish();
    remove_parts(use_.file, parts.number, parts.number);
    return {};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    return disk_problem(problem);
  }
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
