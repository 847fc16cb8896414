#include "experiments/execution/checkpointing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "results/build_info.hpp"
#include "results/run.hpp"
#include "results/run_directory.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/models/models.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

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
  static const std::string changes =
      build.dirty.value_or(true) ? " with changes " + content_hash(read_file("/proc/self/exe", any_size).value_or(""))
                                 : std::string();
  return fmt::format("Syncopate {} of commit {}{}, results version {}", build.version, build.commit, changes,
                     results_version);
}

// Another BLAS than OpenBLAS does not say which kernels it takes: that is a matter of the processor.
std::string kernel_of_blas() {
  if (!torch_is_loaded()) return "none loaded";
  if (blas_is_reference()) return "the reference BLAS";
  return blas_says_its_kernel() ? blas_kernel() : fmt::format("{}, on {}", blas_kernel(), processor_name());
}

}  // namespace

CheckpointIdentity checkpoint_identity(const Run& run, const CheckpointIdentity& besides, bool is_common) {
  CheckpointIdentity identity{{"run", run.hash},
                              {"program", program()},
                              {"compiler", build_info().compiler + " " + build_info().flags},
                              {"LibTorch", torch_is_loaded() ? torch_version() : "none loaded"},
                              {"start", start_of(run)},
                              {"kept model", run.recording.parameters || run.recording.samples ? "the last" : "none"}};
  identity.insert(identity.end(), besides.begin(), besides.end());
  constexpr const char* of_parts = "as each part says";
  identity.emplace_back("BLAS kernel", is_common ? of_parts : kernel_of_blas());
  identity.emplace_back("LibTorch's kernels", is_common ? of_parts : torch_kernels());
  return identity;
}

namespace fs = std::filesystem;
namespace {

constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();
constexpr std::chrono::seconds patience{5};
constexpr const char* nobody = "none";
constexpr const char* is_it_one = "is the results directory one for all?";

void put(ByteSink& out, std::uint64_t number) { out.write(&number, sizeof(number)); }

std::uint64_t take(ByteSource& in) {
  std::uint64_t number = 0;
  in.read(&number, sizeof(number));
  return number;
}

// What processes tell each other: some numbers, and a text behind them.
DividedWork::Numbers with_text(DividedWork::Numbers numbers, const std::string& text) {
  numbers.insert(numbers.end(), text.begin(), text.end());
  return numbers;
}

std::string text_behind(const DividedWork::Numbers& told, std::ptrdiff_t numbers) {
  return {told.begin() + numbers, told.end()};
}

// Of the first process that has one behind its numbers, with its name unless all have it; empty: nobody has.
std::string first_problem(const std::vector<DividedWork::Numbers>& told, std::ptrdiff_t numbers) {
  std::vector<std::string> texts;
  for (const auto& of_one : told) texts.push_back(text_behind(of_one, numbers));
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  if (first == texts.end()) return {};
  const bool is_of_all = std::ranges::all_of(texts, [&](const std::string& text) { return text == *first; });
  return is_of_all ? *first : fmt::format("process {}: {}", first - texts.begin(), *first);
}

bool is_there(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none);
}

// Who has written it may be on another machine, and the file system late.
bool comes_to_be_there(const fs::path& file, std::chrono::seconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!is_there(file)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

CheckpointParts::CheckpointParts(const Run& run, const fs::path& file, const fs::path& below, DividedWork& divided)
    : run_(run), file_(file), below_(below), divided_(divided) {}

CheckpointIdentity CheckpointParts::identity(const std::string& process) const {
  const CheckpointIdentity besides = {{"number of processes", fmt::format("{}", divided_.processes())},
                                      {"process", process}};
  return checkpoint_identity(run_, besides, process == nobody);
}

CheckpointIdentity CheckpointParts::own_identity() const { return identity(fmt::format("{}", divided_.self())); }

fs::path CheckpointParts::own_part(std::int64_t number) const {
  return part_of_checkpoint(file_, number, divided_.self());
}

std::unique_ptr<CheckpointReader> CheckpointParts::open(bool is_taken_up, std::string& problem) {
  std::unique_ptr<CheckpointReader> part;
  Parts parts;
  std::string own;
  try {
    if (is_taken_up && is_there(file_)) part = find(parts);
  } catch (const CheckpointFault& fault) {
    own = fault.what();
  }
  problem = problem_of_all(parts.number, own);
  if (!problem.empty()) part = nullptr;
  return part;
}

std::unique_ptr<CheckpointReader> CheckpointParts::find(Parts& parts) const {
  CheckpointReader common(file_, identity(nobody));
  parts.number = static_cast<std::int64_t>(take(common));
  for (int process = 0; process < divided_.processes(); ++process) parts.digests.push_back(take(common));
  if (!is_there(own_part(parts.number))) throw CheckpointFault("its part is not there");
  auto reader = std::make_unique<CheckpointReader>(own_part(parts.number), own_identity());
  if (reader->digest() != parts.digests[static_cast<std::size_t>(divided_.self())])
    throw CheckpointFault("its part is of another one");
  return reader;
}

// Why they do not go on from one; empty: they do, or none of them finds any. `number`: which one this process finds.
std::string CheckpointParts::problem_of_all(std::int64_t number, const std::string& own) const {
  const auto told =
      divided_.exchanged_numbers(divided_.all(), [&] { return with_text({static_cast<double>(number)}, own); });
  const std::string problem = first_problem(told, 1);
  if (!problem.empty()) return problem;
  const bool find_the_same = std::ranges::all_of(told, [&](const auto& of_one) { return of_one == told.front(); });
  return find_the_same ? "" : fmt::format("some processes do not find it: {}", is_it_one);
}

std::unique_ptr<CheckpointWriter> CheckpointParts::part(std::int64_t number) const {
  if (divided_.self() != 0 && !below_.empty() && !is_there(below_))
    throw std::runtime_error(fmt::format("{} is not there: {}", below_.string(), is_it_one));
  return std::make_unique<CheckpointWriter>(own_part(number), own_identity(), below_);
}

std::string CheckpointParts::publish(std::int64_t number, std::uint64_t digest, const std::string& problem) {
  constexpr int half = 32;
  constexpr std::uint64_t low = 0xffffffff;  // a number holds 53 bits
  const auto told = divided_.exchanged_numbers(divided_.all(), [&] {
    return with_text({static_cast<double>(digest >> half), static_cast<double>(digest & low)}, problem);
  });
  std::string of_all = first_problem(told, 2);
  if (of_all.empty()) {
    Parts parts{.number = number};
    for (const auto& of_one : told)
      parts.digests.push_back((static_cast<std::uint64_t>(of_one[0]) << half) | static_cast<std::uint64_t>(of_one[1]));
    const auto named = divided_.exchanged_numbers(ProcessSet::only(0), [&] { return with_text({}, name(parts)); });
    of_all = text_behind(named.front(), 0);
  }
  std::error_code ignored;
  if (!of_all.empty()) fs::remove(own_part(number), ignored);  // else it would stay, and the next one beside it
  return of_all;
}

std::string CheckpointParts::name(const Parts& parts) {
  std::optional<CheckpointWriter> writer;
  try {
    for (int process = 0; process < divided_.processes(); ++process) {
      is_patient_ = comes_to_be_there(part_of_checkpoint(file_, parts.number, process),
                                      is_patient_ ? patience : std::chrono::seconds(0));
      if (!is_patient_)
        return fmt::format("the part of process {} is not to be seen by process 0: {}", process, is_it_one);
    }
    writer.emplace(file_, identity(nobody), below_);
    put(*writer, static_cast<std::uint64_t>(parts.number));
    for (const std::uint64_t digest : parts.digests) put(*writer, digest);
    writer->finish();
    writer->publish();
    remove_parts(file_, any_number, parts.number);  // nobody writes another one before all have heard of this
    return {};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    // It names these parts: they stay, and the older ones too, in case the disk has the older file.
    return writer && writer->is_published() ? "" : disk_problem(problem);
  }
}

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
