#include "experiments/execution/checkpointing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "experiments/execution/ranks.hpp"
#include "results/build_info.hpp"
#include "results/run_directory.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/models/models.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

constexpr double last_part = 0.9;  // share of an interval after which the next end of a round gets the checkpoint
constexpr std::chrono::seconds patience{5};  // time-out for a file system that shows another host's files late
constexpr auto look_interval = std::chrono::milliseconds(20);  // interval between two checks for ranks' parts
constexpr double longest_wait_s = 30;  // time to wait for ranks' parts before the next checkpoint is started
constexpr const char* is_it_one = "is the results directory shared?";
constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

bool is_there(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none);
}

void report(const CheckpointUse& use, const std::string& what) {
  standard_error.write(printable_lines(fmt::format("checkpoint {}: {}", use.file.string(), what)) + "\n");
}

void report_resumption(Progress& progress, double host_s_before) {
  progress.note(fmt::format("resumes from its checkpoint, written after {} of real time", clock_text(host_s_before)));
}

// Returns the identity of the parameters from which a run starts. (The run's configuration contains only their path.)
std::string start_of(const Run& run) {
  if (!run.training.options.start) return "the model's own";
  const auto hash = [](const std::vector<float>& values) {
    return content_hash({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  };
  return hash(run.training.options.start->parameters) + hash(run.training.options.start->buffers);
}

// Returns the program's identity: its commit, and a hash of the executable if the source has uncommitted changes.
std::string program() {
  const BuildInfo& build = build_info();
  static const std::string changes =
      build.dirty.value_or(true) ? " with changes " + content_hash(read_file("/proc/self/exe", any_size).value_or(""))
                                 : std::string();
  return fmt::format("Syncopate {} of commit {}{}, results version {}", build.version, build.commit, changes,
                     results_version);
}

// Returns the name of the BLAS kernel. Libraries other than OpenBLAS do not name it, but choose it by the processor.
std::string kernel_of_blas() {
  if (!torch_is_loaded()) return "none loaded";
  if (blas_is_reference()) return "the reference BLAS";
  return blas_says_its_kernel() ? blas_kernel() : fmt::format("{}, on {}", blas_kernel(), processor_name());
}

// Returns everything that determines a run's results to the bit, and the log in its checkpoint. A run resumes only from
// a checkpoint with the same identity. `besides`: further entries, about the processes of the run. `is_common`: the
// identity is that of the file that names the parts. It lacks the entries that depend on the processor, because
// processes may have different ones. The parts have these entries.
CheckpointIdentity checkpoint_identity(const Run& run, const CheckpointIdentity& besides, bool is_common = false) {
  CheckpointIdentity identity{{"run", run.hash},
                              {"program", program()},
                              {"compiler", build_info().compiler + " " + build_info().flags},
                              {"LibTorch", torch_is_loaded() ? torch_version() : "none loaded"},
                              {"start", start_of(run)},
                              {"kept model", run.recording.parameters || run.recording.samples ? "the last" : "none"}};
  identity.insert(identity.end(), besides.begin(), besides.end());
  constexpr const char* of_parts = "as each part says";
  identity.emplace_back("BLAS kernel", is_common ? of_parts : kernel_of_blas());
  identity.emplace_back("LibTorch's kernels", is_common ? of_parts : torch_kernels(run.training.arithmetic.device));
  return identity;
}

// Returns the numbers followed by the text's characters, so that processes can exchange both at once.
DividedWork::Numbers with_text(DividedWork::Numbers numbers, const std::string& text) {
  numbers.insert(numbers.end(), text.begin(), text.end());
  return numbers;
}

std::string text_behind(const DividedWork::Numbers& exchanged, std::ptrdiff_t numbers) {
  return {exchanged.begin() + numbers, exchanged.end()};
}

// Returns the first text that follows the numbers; empty if no process has a text. Names the process with this text
// before it, unless all processes have the same one.
std::string first_problem(const std::vector<DividedWork::Numbers>& exchanged, std::ptrdiff_t numbers) {
  std::vector<std::string> texts;
  for (const auto& of_one : exchanged) texts.push_back(text_behind(of_one, numbers));
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  if (first == texts.end()) return {};
  const bool is_of_all = std::ranges::count(texts, *first) == std::ssize(texts);
  return is_of_all ? *first : fmt::format("process {}: {}", first - texts.begin(), *first);
}

bool comes_to_be_there(const fs::path& file, std::chrono::seconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!is_there(file)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

// The checkpoint of a run that several processes divide. Each process writes a part. Once the first process sees all
// parts, it writes a file that names them. If one process cannot write its part, the others remove their parts. The
// previous checkpoint is kept until a new one is complete. All processes call the functions in the same order.
class SimulatedRunCheckpoints::Parts {
 public:
  // `file`: the file that names the parts. `below`: a directory above it, which is not created if it is missing. The
  // arguments must outlive this object.
  Parts(const Run& run, const fs::path& file, const fs::path& below, DividedWork& divided)
      : run_(run), file_(file), below_(below), divided_(divided) {}

  // Returns this process's part of the existing checkpoint. Null if the run must start from the beginning. If there is
  // a reason to report, sets `problem` to the same text on all processes.
  std::unique_ptr<CheckpointReader> open(bool resumes, std::string& problem) {
    std::unique_ptr<CheckpointReader> part;
    std::int64_t number = 0;  // number of the checkpoint that this process finds; 0: none
    std::string own;
    try {
      if (resumes && is_there(file_)) part = find(number);
    } catch (const CheckpointFault& fault) {
      own = fault.what();
    }
    const auto exchanged =
        divided_.exchanged_numbers(divided_.all(), [&] { return with_text({static_cast<double>(number)}, own); });
    problem = first_problem(exchanged, 1);
    if (problem.empty() && std::ranges::adjacent_find(exchanged, std::not_equal_to()) != exchanged.end())
      problem = fmt::format("some processes cannot see it: {}", is_it_one);
    return problem.empty() ? std::move(part) : nullptr;
  }

  // Returns a writer for this process's part of a new checkpoint, whose `number` must be higher than all earlier ones.
  std::unique_ptr<CheckpointWriter> part(std::int64_t number) const {
    if (divided_.self() != 0 && !below_.empty() && !is_there(below_))
      throw std::runtime_error(fmt::format("{} does not exist: {}", below_.string(), is_it_one));
    return std::make_unique<CheckpointWriter>(own_part(number), identity(divided_.self()), below_);
  }

  // Writes the file that names the parts, and removes older parts. All parts are on the disk. `digest`: digest of this
  // process's part. `problem`: why this process has no part, or empty. Returns why there is no new checkpoint, or an
  // empty text; the result is the same on all processes.
  std::string publish(std::int64_t number, std::uint64_t digest, const std::string& problem) {
    constexpr int half = 32;
    constexpr std::uint64_t low = 0xffffffff;  // splits the digest, because an exchanged number holds only 53 bits
    const auto exchanged = divided_.exchanged_numbers(divided_.all(), [&] {
      return with_text({static_cast<double>(digest >> half), static_cast<double>(digest & low)}, problem);
    });
    std::string of_all = first_problem(exchanged, 2);
    if (of_all.empty()) {
      CheckpointParts common{.number = number};
      for (const auto& of_one : exchanged)
        common.digests.push_back((static_cast<std::uint64_t>(of_one[0]) << half) |
                                 static_cast<std::uint64_t>(of_one[1]));
      const auto named = divided_.exchanged_numbers(ProcessSet::only(0), [&] { return with_text({}, name(common)); });
      of_all = text_behind(named.front(), 0);
    }
    std::error_code ignored;
    if (!of_all.empty()) fs::remove(own_part(number), ignored);
    return of_all;
  }

 private:
  // `process`: the process of a part; nullopt: the identity is that of the file that names the parts.
  CheckpointIdentity identity(std::optional<int> process) const {
    return checkpoint_identity(run_,
                               {{"number of processes", fmt::format("{}", divided_.processes())},
                                {"process", process ? fmt::format("{}", *process) : "none"}},
                               !process);
  }

  fs::path own_part(std::int64_t number) const { return part_of_checkpoint(file_, number, divided_.self()); }

  std::unique_ptr<CheckpointReader> find(std::int64_t& number) const {
    CheckpointReader file(file_, identity({}));
    CheckpointParts common;
    StateArchive archive(file);
    archive(common);
    number = common.number;
    if (!is_there(own_part(number))) throw CheckpointFault("its part is missing");
    auto reader = std::make_unique<CheckpointReader>(own_part(number), identity(divided_.self()));
    if (reader->digest() != common.digests.at(static_cast<std::size_t>(divided_.self())))
      throw CheckpointFault("its part belongs to a different checkpoint");
    return reader;
  }

  // Only on process 0: writes the file that names the parts. Returns why it cannot, or an empty text.
  std::string name(CheckpointParts& common) {
    std::optional<CheckpointWriter> writer;
    try {
      for (int process = 0; process < divided_.processes(); ++process) {
        is_patient_ = comes_to_be_there(part_of_checkpoint(file_, common.number, process),
                                        is_patient_ ? patience : std::chrono::seconds(0));
        if (!is_patient_) return fmt::format("process 0 cannot see the part of process {}: {}", process, is_it_one);
      }
      writer.emplace(file_, identity({}), below_);
      StateArchive archive(*writer);
      archive(common);
      writer->finish();
      writer->publish();
      // Safe, because processes write their next part only after this call.
      remove_parts(file_, any_number, common.number);
      return {};
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& problem) {
      // The published file names these parts. Older parts are kept as well, in case the disk still has the older file.
      return writer && writer->is_published() ? "" : disk_problem(problem);
    }
  }

  const Run& run_;
  const fs::path& file_;
  const fs::path& below_;
  DividedWork& divided_;
  bool is_patient_ = true;  // whether all parts appeared the last time; if not, the next check does not wait for them
};

// Under MPI a replay skips the waits, so time-only runs have checkpoints, too.
bool has_checkpoints(const Run& run, bool mpi) { return run.checkpoint.is_written && (mpi || !run.training.time_only); }

SimulatedRunCheckpoints::SimulatedRunCheckpoints(const Run& run, const CheckpointUse& use, CheckpointLog& log,
                                                 Executor& executor, Recorder& recorder, DividedWork* divided,
                                                 Progress& progress)
    : run_(run), use_(use), log_(log), executor_(executor), recorder_(recorder), divided_(divided) {
  if (divided_) parts_ = std::make_unique<Parts>(run_, use_.file, use_.below, *divided_);
  open(progress);
  log_.at_position = [this] { resume(); };
  log_.between_steps = [this] { write_if_due(); };
}

SimulatedRunCheckpoints::~SimulatedRunCheckpoints() { log_.at_position = log_.between_steps = nullptr; }

// Returns the identity of an undivided run. It also has the entries of divided runs, so that messages can explain why
// the run does not resume from a divided run's checkpoint.
CheckpointIdentity SimulatedRunCheckpoints::own_identity() const {
  return checkpoint_identity(run_, {{"number of processes", "1"}, {"process", "none"}});
}

void SimulatedRunCheckpoints::open(Progress& progress) {
  std::string problem;
  std::unique_ptr<CheckpointReader> reader;
  try {
    if (parts_)
      reader = parts_->open(use_.resumes, problem);
    else if (use_.resumes && fs::exists(use_.file))
      reader = std::make_unique<CheckpointReader>(use_.file, own_identity());
    if (reader) {
      StateArchive archive(*reader);
      archive(host_s_before_, evaluated_before_);
      log_.replay(*reader);
      reader_ = std::move(reader);
      report_resumption(progress, host_s_before_);
    }
  } catch (const CheckpointFault& fault) {
    if (divided_) throw ReplayMismatch(fault.what());  // execute() notifies the other processes
    problem = fault.what();
    host_s_before_ = 0;
  }
  if (!problem.empty() && is_first()) report(use_, fmt::format("{}; the run starts from the beginning", problem));
}

// Called by the replayed run at the checkpoint's step. The run has skipped all tasks before this step.
void SimulatedRunCheckpoints::resume() {
  if (!recorder_.restore(evaluated_before_)) throw ReplayMismatch("the replay evaluated a different number of models");
  try {
    log_.read_values(*reader_);
  } catch (const CheckpointFault& fault) {
    throw ReplayMismatch(fault.what());
  }
  reader_ = nullptr;
  evaluated_before_ = {};
  last_ = HostClock::now();
  last_step_ = log_.steps();
}

void SimulatedRunCheckpoints::check_end() const {
  if (log_.replays()) throw ReplayMismatch("the replay ended before the checkpoint's step");
}

// Whether to stop and consult the clock. A process that executes the run alone already reads the clock here.
bool SimulatedRunCheckpoints::is_looked_at() const {
  const double part = has_round_ended_ ? last_part : 1;
  const auto steps = static_cast<double>(log_.steps() - last_step_);
  return steps >= part * static_cast<double>(looked_at_after_) ||
         (!divided_ && seconds(HostClock::now() - last_) >= part * run_.checkpoint.every_s);
}

// Whether to write a checkpoint now. If it returns true, no task is pending.
bool SimulatedRunCheckpoints::due() {
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
    const auto own = [&] { return std::vector{is_due ? 1.0 : 0.0, next}; };
    const DividedWork::Numbers of_first = divided_->exchanged_numbers(ProcessSet::only(0), own).front();
    is_due = of_first[0] != 0;
    next = of_first[1];
  }
  looked_at_after_ = static_cast<std::int64_t>(next);
  return is_due;
}

void SimulatedRunCheckpoints::write_if_due() {
  if (!due()) return;
  if (recorder_.has_diverged()) return;  // the run ends shortly
  if (use_.is_mine && !use_.is_mine()) return;
  std::uint64_t digest = 0;
  std::string problem;
  try {
    if (on_its_way_.valid()) on_its_way_.get();
    digest = write();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& fault) {
    problem = disk_problem(fault);
  }
  if (parts_) problem = parts_->publish(log_.steps(), digest, problem);
  if (!problem.empty() && !std::exchange(has_failed_, true) && is_first())
    report(use_, fmt::format("no new one was written, and the run continues: {}", problem));
  last_ = HostClock::now();
  last_step_ = log_.steps();
}

// Writes this process's checkpoint, or its part of one. Returns the digest.
std::uint64_t SimulatedRunCheckpoints::write() {
  const std::shared_ptr<CheckpointWriter> writer =
      parts_ ? parts_->part(log_.steps()) : std::make_unique<CheckpointWriter>(use_.file, own_identity(), use_.below);
  double host_s = host_s_before_ + seconds(HostClock::now() - begin_);
  Recorder::Evaluated evaluated = recorder_.evaluated();
  StateArchive archive(*writer);
  archive(host_s, evaluated);
  log_.write_log(*writer, log_.last_number());
  log_.write_values(*writer, log_.last_number());
  writer->finish();
  if (parts_)
    writer->publish();
  else
    on_its_way_ = std::async(std::launch::async, [writer] { writer->publish(); });
  return writer->digest();
}

MpiRunCheckpoints::MpiRunCheckpoints(const Run& run, const CheckpointUse& use, const MpiSession& session,
                                     Progress& progress, std::function<void(StateArchive&)> besides)
    : run_(run), use_(use), session_(session), besides_(std::move(besides)) {
  number_ = open(progress);
  if (number_ > 0) named_ = number_;
  if (session_.rank() == 0) {  // parts of earlier attempts must not be mistaken for parts of this one
    if (!resumes_) remove_checkpoint(use_.file);
    remove_parts(use_.file, any_number, number_ > 0 ? number_ : -1);
  }
  from_rank_0(session_, 0.0);
}

// `rank`: the rank of a part; nullopt: the identity is that of the file that names the parts.
CheckpointIdentity MpiRunCheckpoints::identity(std::optional<int> rank) const {
  const RecordingPlan& plan = run_.recording;
  const std::string recording = fmt::format("trace {} to {} s or {} spans, durations {}, arrivals {}, samples {}",
                                            plan.trace, plan.trace_seconds.value_or(0), plan.trace_events,
                                            plan.records_durations(true), plan.arrivals, plan.samples);
  return checkpoint_identity(run_,
                             {{"number of ranks", fmt::format("{}", session_.size())},
                              {"rank", rank ? fmt::format("{}", *rank) : "none"},
                              {"recording", recording}},
                             !rank);
}

// Returns the number of the checkpoint from which the run resumes; 0: it starts from the beginning.
std::int64_t MpiRunCheckpoints::open(Progress& progress) {
  const bool is_wanted = session_.rank() == 0 && use_.resumes && is_there(use_.file);
  if (!from_rank_0(session_, is_wanted)) return 0;
  CheckpointParts common;
  std::string problem;
  try {
    if (!is_there(use_.file)) throw CheckpointFault(fmt::format("the file is missing: {}", is_it_one));
    CheckpointReader reader(use_.file, identity({}));
    StateArchive archive(reader);
    archive(common, host_s_before_);
    const bool is_used = session_.rank() < run_.cluster.workers + run_.algorithm->traits().servers;
    if (is_used) try {
        if (!is_there(part_file(common.number))) throw CheckpointFault("it is missing");
        reader_ = std::make_unique<CheckpointReader>(part_file(common.number), identity(session_.rank()));
        if (reader_->digest() != common.digests.at(static_cast<std::size_t>(session_.rank())))
          throw CheckpointFault("it belongs to a different checkpoint");
      } catch (const CheckpointFault& fault) {
        problem = fmt::format("the part of rank {}: {}", session_.rank(), fault.what());
      }
  } catch (const std::exception& fault) {
    problem = fault.what();
    if (session_.rank() > 0) problem = fmt::format("rank {}: {}", session_.rank(), problem);
  }
  // A rank cannot resume if it finds another checkpoint than rank 0.
  const std::int64_t number = from_rank_0(session_, common.number);
  if (problem.empty() && common.number != number)
    problem = fmt::format("rank {} finds a different one", session_.rank());
  const std::vector<std::string> problems = texts_on_rank_0(session_, problem);
  const auto first = std::ranges::find_if(problems, [](const std::string& text) { return !text.empty(); });
  resumes_ = from_rank_0(session_, first == problems.end());
  if (resumes_) {
    report_resumption(progress, host_s_before_);
    return common.number;
  }
  reader_ = nullptr;
  host_s_before_ = 0;
  if (session_.rank() == 0) report(use_, fmt::format("{}; the run starts from the beginning", *first));
  return 0;
}

fs::path MpiRunCheckpoints::part_file(std::int64_t number) const {
  return part_of_checkpoint(use_.file, number, session_.rank());
}

void MpiRunCheckpoints::resumed() {
  reader_ = nullptr;
  last_ = HostClock::now();
  if (use_.on_resumed) use_.on_resumed();
}

// Returns the number of a checkpoint that is due now. Between two checkpoints the run continues for at least as long as
// the last checkpoint took. So it makes progress even if ranks or their disks are slow.
std::optional<std::int64_t> MpiRunCheckpoints::due() {
  const auto now = HostClock::now();
  if (open_ && now - last_look_ > look_interval) {
    last_look_ = now;
    publish_if_there();
  }
  if (published_.valid()) {
    if (published_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    settle_published();
  }
  const double interval_s = std::max({run_.checkpoint.every_s, seconds(took_), open_ ? longest_wait_s : 0.0});
  if (seconds(now - last_) < interval_s) return std::nullopt;
  if (const auto given_up = std::exchange(open_, std::nullopt)) {
    remove_parts(use_.file, given_up->number, named_);
    report_failure(
        fmt::format("parts of ranks did not appear on the disk within {:.0f} s: {}", seconds(now - last_), is_it_one));
  }
  called_ = now;
  return ++number_;
}

std::optional<std::uint64_t> MpiRunCheckpoints::write(std::int64_t number,
                                                      const std::function<void(ByteSink&)>& contents) {
  try {
    wait_for_disk();
    // If this rank does not find the file that names the parts, because the directory is not shared, it removes old
    // parts itself. It keeps the last few, because a shared file system may show that file late.
    if (session_.rank() > 0 && !is_there(use_.file)) remove_parts(use_.file, number - 3);
    auto writer = std::make_shared<CheckpointWriter>(part_file(number), identity(session_.rank()), use_.below);
    contents(*writer);
    writer->finish();
    const std::uint64_t digest = writer->digest();
    on_its_way_ = std::async(std::launch::async, [writer = std::move(writer)] { writer->publish(); });
    return digest;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    report_failure(fmt::format("no new one was written, and the run continues: rank {}: {}", session_.rank(),
                               disk_problem(problem)));
    return std::nullopt;
  }
}

bool MpiRunCheckpoints::written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) {
  last_ = HostClock::now();
  took_ = last_ - called_;
  number_ = number;
  const bool is_whole = std::ranges::all_of(digests, [](const auto& digest) { return digest.has_value(); });
  if (!is_whole) unwanted_ = number;
  if (is_whole && session_.rank() == 0) {
    open_ = {.number = number};
    for (const auto& digest : digests) open_->digests.push_back(*digest);
  }
  if (!use_.leaves || !use_.leaves(number)) return false;
  wait_for_disk();
  while (open_) {
    publish_if_there();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  settle_published();
  return true;
}

// If all parts are there, writes the file that names the parts, and then removes older parts. If the file cannot be
// written, removes the new parts.
void MpiRunCheckpoints::publish_if_there() {
  for (int rank = 0; rank < std::ssize(open_->digests); ++rank)
    if (!is_there(part_of_checkpoint(use_.file, open_->number, rank))) return;
  CheckpointParts common = *std::exchange(open_, std::nullopt);
  settle_published();
  double host_s = host_s_before_ + seconds(HostClock::now() - begin_);
  published_ = std::async(std::launch::async, [file = use_.file, below = use_.below, identity = identity({}),
                                               common = std::move(common), host_s, named = named_]() mutable {
    std::optional<CheckpointWriter> writer;
    try {
      writer.emplace(file, identity, below);
      StateArchive archive(*writer);
      archive(common, host_s);
      writer->finish();
      writer->publish();
    } catch (...) {
      const bool is_named = writer && writer->is_published();  // the file exists, but may not be on the disk yet
      if (!is_named) remove_parts(file, common.number, named);
      throw;
    }
    remove_parts(file, common.number, common.number);
    return common.number;
  });
}

void MpiRunCheckpoints::settle_published() {
  if (!published_.valid()) return;
  try {
    named_ = published_.get();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    report_failure(fmt::format("no new one was written, and the run continues: {}", disk_problem(problem)));
  }
}

void MpiRunCheckpoints::settle() {
  open_ = std::nullopt;
  try {
    wait_for_disk();
    if (published_.valid()) published_.get();
  } catch (const std::exception&) {  // ignored: the run has ended, so the checkpoint is no longer needed
  }
  reduced(session_, 0.0, MPI_SUM);
  if (session_.rank() > 0 && !is_there(use_.file)) remove_parts(use_.file, any_number);
}

void MpiRunCheckpoints::wait_for_disk() {
  if (on_its_way_.valid()) on_its_way_.wait();
  std::error_code ignored;
  if (const auto unwanted = std::exchange(unwanted_, std::nullopt)) fs::remove(part_file(*unwanted), ignored);
  if (on_its_way_.valid()) on_its_way_.get();
}

void MpiRunCheckpoints::report_failure(const std::string& what) {
  if (!std::exchange(has_failed_, true)) report(use_, what);
}

}  // namespace syncopate
