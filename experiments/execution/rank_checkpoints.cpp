#include "experiments/execution/rank_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/ranks.hpp"
#include "results/run_directory.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

constexpr auto patience = std::chrono::milliseconds(20);  // between two looks for parts
constexpr double longest_wait_s = 30;                     // for them, before a newer one
constexpr const char* is_it_one = "is the results directory one for all?";
constexpr int no_rank = -1;  // of what is common to all
constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

bool is_there(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none);
}

}  // namespace

RankCheckpoints::RankCheckpoints(const Run& run, const CheckpointUse& use, const MpiSession& session,
                                 Progress& progress, std::function<void(StateArchive&)> besides)
    : run_(run), use_(use), session_(session), besides_(std::move(besides)) {
  number_ = open(progress);
  if (number_ > 0) named_ = number_;
  if (session_.rank() == 0) {  // no part that was there before is taken for one of this attempt
    if (!goes_on_) remove_checkpoint(use_.file);
    remove_parts(use_.file, any_number, number_ > 0 ? number_ : -1);
  }
  from_rank_0(session_, 0.0);
}

RankCheckpoints::~RankCheckpoints() {
  for (std::future<void>* const task : {&on_its_way_, &published_}) {
    try {
      if (task->valid()) task->get();
    } catch (const std::exception&) {
    }
  }
}

CheckpointIdentity RankCheckpoints::identity(int rank) const {
  const RecordingPlan& plan = run_.recording;
  const std::string recording = fmt::format("trace {} to {} s or {} spans, durations {}, arrivals {}, samples {}",
                                            plan.trace, plan.trace_seconds.value_or(0), plan.trace_events,
                                            plan.records_durations(true), plan.arrivals, plan.samples);
  return checkpoint_identity(run_,
                             {{"number of ranks", fmt::format("{}", session_.size())},
                              {"rank", rank == no_rank ? "none" : fmt::format("{}", rank)},
                              {"recording", recording}},
                             rank == no_rank);
}

// The number of the one that the run goes on from; 0: it begins.
std::int64_t RankCheckpoints::open(Progress& progress) {
  const bool is_wanted = session_.rank() == 0 && use_.is_taken_up && is_there(use_.file);
  if (from_rank_0(session_, is_wanted ? 1.0 : 0.0) == 0) return 0;
  Common common;
  std::string problem;
  try {
    if (!is_there(use_.file)) throw CheckpointFault(fmt::format("it is not there: {}", is_it_one));
    CheckpointReader reader(use_.file, identity(no_rank));
    StateArchive archive(static_cast<ByteSource&>(reader));
    archive(common.number, common.digests, host_s_before_);
    if (takes_part()) problem = open_part(common.number);
    if (reader_ && reader_->digest() != common.digests.at(static_cast<std::size_t>(session_.rank())))
      problem = "it is of another checkpoint";
    if (!problem.empty()) problem = fmt::format("the part of rank {}: {}", session_.rank(), problem);
  } catch (const std::exception& fault) {
    problem = fault.what();
    if (session_.rank() > 0) problem = fmt::format("rank {}: {}", session_.rank(), problem);
  }
  // Who finds another file than rank 0 has none of its own.
  const auto number = static_cast<std::int64_t>(from_rank_0(session_, static_cast<double>(common.number)));
  if (problem.empty() && common.number != number) problem = fmt::format("rank {} finds another one", session_.rank());
  const std::vector<std::string> problems = texts_on_rank_0(session_, problem);
  const auto first = std::ranges::find_if(problems, [](const std::string& text) { return !text.empty(); });
  goes_on_ = from_rank_0(session_, first == problems.end() ? 1.0 : 0.0) != 0;
  if (goes_on_) {
    progress.note(fmt::format("goes on from its checkpoint, which it wrote after {} of this machine's time",
                              clock_text(host_s_before_)));
    return common.number;
  }
  reader_ = nullptr;
  host_s_before_ = 0;
  if (session_.rank() == 0) report(fmt::format("{}; the run begins anew", *first));
  return 0;
}

std::string RankCheckpoints::open_part(std::int64_t number) {
  if (!is_there(part_of_checkpoint(use_.file, number, session_.rank()))) return "it is not there";
  try {
    reader_ = std::make_unique<CheckpointReader>(part_of_checkpoint(use_.file, number, session_.rank()),
                                                 identity(session_.rank()));
    return "";
  } catch (const CheckpointFault& fault) {
    return fault.what();
  }
}

// Else the method does not need it.
bool RankCheckpoints::takes_part() const {
  return session_.rank() < run_.cluster.workers + run_.algorithm->traits().servers;
}

void RankCheckpoints::gone_on() {
  reader_ = nullptr;
  last_ = HostClock::now();
  if (use_.on_gone_on) use_.on_gone_on();
}

void RankCheckpoints::keep(StateArchive& archive) { besides_(archive); }

// The run goes on for at least as long as the last one took, so that it comes to its end however slow ranks, or their
// disk, are.
std::optional<std::int64_t> RankCheckpoints::due() {
  const auto now = HostClock::now();
  if (open_ && now - last_look_ > patience) {
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
        fmt::format("parts of ranks have not come to the disk in {:.0f} s: {}", seconds(now - last_), is_it_one));
  }
  called_ = now;
  return ++number_;
}

RankStore::Written RankCheckpoints::write(std::int64_t number, const std::function<void(ByteSink&)>& contents) {
  try {
    wait_for_disk();
    // On another machine's own disk nobody names them; a file system of all may be late to show who does.
    if (session_.rank() > 0 && !is_there(use_.file)) remove_parts(use_.file, number - 3);
    const fs::path part = part_of_checkpoint(use_.file, number, session_.rank());
    auto writer = std::make_shared<CheckpointWriter>(part, identity(session_.rank()), use_.below);
    contents(*writer);
    writer->finish();
    const std::uint64_t digest = writer->digest();
    on_its_way_ = std::async(std::launch::async, [writer = std::move(writer)] { writer->publish(); });
    return {.digest = digest};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    report_failure(
        fmt::format("there is no newer one, and the run goes on: rank {}: {}", session_.rank(), disk_problem(problem)));
    return {.problem = disk_problem(problem)};
  }
}

bool RankCheckpoints::written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) {
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

void RankCheckpoints::publish_if_there() {
  for (int rank = 0; rank < std::ssize(open_->digests); ++rank)
    if (!is_there(part_of_checkpoint(use_.file, open_->number, rank))) return;
  publish(*std::exchange(open_, std::nullopt));
}

// Older parts go once nothing names them; these, if nothing comes to name them.
void RankCheckpoints::publish(const Common& common) {
  settle_published();
  const double host_s = host_s_before_ + seconds(HostClock::now() - begin_);
  published_ = std::async(std::launch::async, [file = use_.file, below = use_.below, identity = identity(no_rank),
                                               common, host_s, named = named_] {
    std::optional<CheckpointWriter> writer;
    try {
      writer.emplace(file, identity, below);
      StateArchive archive(static_cast<ByteSink&>(*writer));
      Common written = common;
      double took_s = host_s;
      archive(written.number, written.digests, took_s);
      writer->finish();
      writer->publish();
    } catch (...) {
      const bool is_named = writer && writer->is_published();  // by what may not be on the disk
      if (!is_named) remove_parts(file, common.number, named);
      throw;
    }
    remove_parts(file, common.number, common.number);
  });
  publishing_ = common.number;
}

void RankCheckpoints::settle_published() {
  if (!published_.valid()) return;
  try {
    published_.get();
    named_ = publishing_;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    report_failure(fmt::format("there is no newer one, and the run goes on: {}", disk_problem(problem)));
  }
}

void RankCheckpoints::settle() {
  open_ = std::nullopt;
  try {
    wait_for_disk();
    if (published_.valid()) published_.get();
  } catch (const std::exception&) {  // what it was for has ended
  }
  reduced(session_, 0.0, MPI_SUM);
  if (session_.rank() > 0 && !is_there(use_.file)) remove_parts(use_.file, any_number);
}

void RankCheckpoints::wait_for_disk() {
  const auto unwanted = std::exchange(unwanted_, std::nullopt);
  const auto remove_it = [&] {
    std::error_code ignored;
    if (unwanted) fs::remove(part_of_checkpoint(use_.file, *unwanted, session_.rank()), ignored);
  };
  try {
    if (on_its_way_.valid()) on_its_way_.get();
  } catch (...) {
    remove_it();
    throw;
  }
  remove_it();
}

void RankCheckpoints::report_failure(const std::string& what) {
  if (!std::exchange(has_failed_, true)) report(what);
}

void RankCheckpoints::report(const std::string& what) {
  standard_error.write(printable_lines(fmt::format("checkpoint {}: {}", use_.file.string(), what)) + "\n");
}

}  // namespace syncopate
