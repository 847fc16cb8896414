#include "results/lease.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <random>
#include <regex>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <system_error>
#include <utility>

#include "results/run_directory.hpp"
#include "results/summary.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {

namespace fs = std::filesystem;
namespace {

constexpr const char* lease_ending = ".json";

constexpr std::uint64_t most_lease_bytes = 1 << 16;
constexpr int last_number = 999'999'999;       // largest generation of a lease
constexpr double longest_time_out_s = 86'400;  // largest value of --lease-timeout
constexpr std::size_t block = 512;             // in bytes; a note is padded to whole blocks and written in one call

std::string file_name(const std::string& what, int generation) { return fmt::format("{}.{}", what, generation); }

// The generations of each lease in the directory, by LeaseNote::what.
std::map<std::string, std::set<int>> generations_in(const fs::path& directory) {
  static const std::regex of_lease("([^.].*)\\.([1-9][0-9]{0,8})");
  std::map<std::string, std::set<int>> generations;
  std::error_code ignored;
  for (const fs::path& path : paths_in(directory, ignored)) {
    const std::string name = path.filename().string();
    if (std::smatch parts; std::regex_match(name, parts, of_lease)) generations[parts[1]].insert(std::stoi(parts[2]));
  }
  return generations;
}

int last_generation(const fs::path& directory, const std::string& what) {
  const std::set<int> all = generations_in(directory)[what];
  return all.empty() ? 0 : *all.rbegin();
}

// Removes the last generation last, so that other processes see the lease as owned until then.
void remove_up_to(const fs::path& directory, const std::string& what, int generation) {
  std::error_code ignored;
  const std::set<int> all = generations_in(directory)[what];
  for (const int each : all)
    if (each <= generation) fs::remove(directory / file_name(what, each), ignored);
}

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

std::string padded(std::string text, std::size_t size) {
  text.resize(std::max(size, (text.size() / block + 1) * block), ' ');
  text.back() = '\n';
  return text;
}

// The content of a file that is named like a lease. If the file is unreadable or not a lease, `text` is its status,
// which also changes whenever an owner writes the file.
struct Content {
  std::string text;
  std::optional<LeaseNote> note;
};

std::optional<Content> content_of(const fs::path& file) {
  struct stat found {};
  if (lstat(file.c_str(), &found) != 0 && errno == ENOENT) return {};
  if (S_ISREG(found.st_mode)) try {
      const auto text = read_file(file, most_lease_bytes);
      if (!text) return {};  // its owner has just given the lease back
      return Content{*text, lease_note_from_text(*text)};
    } catch (const std::runtime_error&) {
    }
  return Content{fmt::format("{} {} {} {} {} {}", found.st_mode, found.st_dev, found.st_ino, found.st_size,
                             found.st_mtim.tv_sec, found.st_mtim.tv_nsec),
                 {}};
}

// Reads the note. Tries several times, because the owner may be writing it at this moment.
std::optional<LeaseNote> note_in(const fs::path& file) {
  constexpr int tries = 5;
  for (int tried = 0; tried < tries; ++tried) {
    auto content = content_of(file);
    if (!content) return {};
    if (content->note) return std::move(content->note);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

[[noreturn]] void fail(const fs::path& path, int error) {
  throw fs::filesystem_error("cannot take a lease", path,
                             std::error_code(error ? error : EIO, std::generic_category()));
}

bool write_whole(int file, const std::string& text) {
  const auto written = pwrite(file, text.data(), text.size(), 0);
  return written == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
}

// Returns the descriptor of the new file, or -1 if the file exists already. Writes a hidden file first and links to it,
// so that no process reads an incomplete file. On NFS the result of link() is not reliable, but the number of links is.
int create_linked(const fs::path& directory, const std::string& name, const std::string& token,
                  const std::string& text) {
  const auto held = hold_off_end();  // otherwise the process could end here and leave a hidden file
  const fs::path aside = hidden_sibling(directory / fmt::format("{}.{}", name, token), partial_kind);
  const fs::path file = directory / name;
  const int descriptor = open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(file, errno);
  int error = write_whole(descriptor, text) ? 0 : errno;
  const bool is_linked = error == 0 && (link(aside.c_str(), file.c_str()) == 0 || [&] {
                           error = errno;
                           std::error_code unknown;
                           return fs::hard_link_count(aside, unknown) == 2 && !unknown;
                         }());
  unlink(aside.c_str());
  if (is_linked) return descriptor;
  close(descriptor);
  if (error == EEXIST) return -1;
  fail(file, error);
}

constexpr const char* of_runs = "runs.json";
constexpr const char* of_trials = "trials.json";

// Whether the path stays within the experiment's directory.
bool stays_within(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return !normal.empty() && normal.is_relative() && *normal.begin() != "..";
}

// Accepts lists of earlier programs, which have no digest.
std::vector<PlannedRun> runs_in(const std::string& text, const fs::path& experiment_directory) {
  Json json = Json::parse(text);
  if (json.is_object()) {
    if (!is_as_written(text, json, {})) throw std::runtime_error("changed after it was written");
    json = Json(json.at("runs"));
  }
  if (!json.is_array()) throw std::runtime_error("no list");
  std::vector<PlannedRun> runs;
  for (const Json& run : json) {
    const fs::path directory = run.at("directory").get<std::string>();
    if (!stays_within(directory)) throw std::runtime_error("leads elsewhere");
    runs.push_back({.hash = run.at("hash"),
                    .label = run.at("label"),
                    .seed = run.at("seed"),
                    .directory = experiment_directory / directory});
  }
  return runs;
}

}  // namespace

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<FailedAttempts, AnyJson>& attempts) {
  members("call", attempts.call);
  members("failures", attempts.failures);
  members("lost", attempts.lost);
  members("is_final", attempts.is_final);
  members("reason", attempts.reason);
}

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<LeaseNote, AnyJson>& note) {
  members("what", note.what);
  members("token", note.token);
  members("host", note.host);
  members("process", note.process.number);
  members("process_start", note.process.start);
  members("machine", note.process.machine);
  members("since", note.since);
  members("time_out_s", note.time_out_s);
  members("share_done", note.share_done);
  members("beat", note.beat);
}

AttemptRecords::AttemptRecords(fs::path directory, std::string call, int retries)
    : directory_(std::move(directory)), call_(std::move(call)), retries_(retries) {
  std::error_code ignored;
  for (const fs::path& path : paths_in(directory_, ignored)) {
    if (path.extension() != lease_ending || path.filename().string().front() == '.') continue;
    const std::string what = path.stem().string();
    auto attempts = last(what);
    if (attempts && attempts->call != call_) earlier_.emplace(what, *std::move(attempts));
  }
}

fs::path AttemptRecords::file(const std::string& what) const { return directory_ / (what + lease_ending); }

std::optional<FailedAttempts> AttemptRecords::last(const std::string& what) const try {
  const auto text = read_file(file(what));
  if (!text) return {};
  const Json json = Json::parse(*text);
  if (!is_as_written(*text, json, "reason")) return {};
  return json.get<FailedAttempts>();
} catch (const std::exception&) {
  return {};
}

void AttemptRecords::write(const std::string& what, const FailedAttempts& attempts) const {
  replace_file(file(what), with_digest(attempts));
}

std::optional<FailedAttempts> AttemptRecords::of(const std::string& what) const {
  auto attempts = last(what);
  const auto earlier = earlier_.find(what);
  if (attempts && earlier != earlier_.end() && *attempts == earlier->second) return {};
  return attempts;
}

bool AttemptRecords::are_used_up(const std::optional<FailedAttempts>& attempts) const {
  return attempts && (attempts->is_final || attempts->failures > retries_ || attempts->lost > std::max(1, retries_));
}

void AttemptRecords::add_failure(const std::string& what, const std::string& reason, bool is_final) const {
  FailedAttempts attempts = of(what).value_or(FailedAttempts{.call = call_});
  ++attempts.failures;
  attempts.is_final = is_final;
  attempts.reason = reason;
  write(what, attempts);
}

void AttemptRecords::add_lost(const std::string& what, const std::string& owner) const {
  FailedAttempts attempts = of(what).value_or(FailedAttempts{.call = call_});
  ++attempts.lost;
  attempts.reason = fmt::format("{} of its processes {} killed or crashed, most recently {}", attempts.lost,
                                attempts.lost == 1 ? "was" : "were", owner);
  write(what, attempts);
}

void AttemptRecords::remove(const std::string& what) const {
  std::error_code ignored;
  fs::remove(file(what), ignored);
}

std::string LeaseNote::owner() const {
  return host.empty() ? "a process that left no name" : fmt::format("{}, process {}", host, process.number);
}

std::string to_text(const LeaseNote& note) { return Json(note).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::optional<LeaseNote> lease_note_from_text(const std::string& text) try {
  return Json::parse(text).get<LeaseNote>();
} catch (const Json::exception&) {
  return {};
}

Lease::Lease(fs::path directory, LeaseNote note, int generation, std::optional<LeaseNote> former)
    : directory_(std::move(directory)),
      note_(std::move(note)),
      generation_(generation),
      former_(std::move(former)),
      former_is_gone_(former_ && state_of(former_->process) == ProcessState::gone) {}

Lease::~Lease() {
  beats_ = {};
  try {
    give_back();
  } catch (const std::exception&) {  // then other processes notice that the owner is silent
  }
  if (file_ >= 0) close(file_);
}

// Removes the lease's files if the last one still has this note. Otherwise another owner has a file of that name.
void Lease::give_back() const {
  const auto found = note_in(directory_ / note_.file_name);
  if (found && found->token == note_.token) remove_up_to(directory_, note_.what, generation_);
}

bool Lease::is_mine() const try {
  const auto note = note_in(directory_ / note_.file_name);
  return note && note->token == note_.token && last_generation(directory_, note_.what) == generation_;
} catch (const std::exception&) {
  return false;
}

Leases::Leases(fs::path directory, std::chrono::milliseconds time_out)
    : directory_(std::move(directory)), time_out_(time_out) {}

std::unique_ptr<Lease> Leases::take(const std::string& what) {
  const int last = last_generation(directory_, what);
  std::optional<LeaseNote> former;
  if (last > 0) {
    const std::string name = file_name(what, last);
    auto content = content_of(directory_ / name);
    if (!content) return nullptr;  // its owner has just given the lease back, so a later call takes it
    former = std::move(content->note);
    if (!is_lost(name, content->text, former)) return nullptr;
    if (!former) former.emplace();
    if (last == last_number)
      throw ResultsDirectoryFault(
          fmt::format("{}: no process uses this lease, and it has the last possible number, so none can take it over; "
                      "remove the file",
                      (directory_ / name).string()));
  }
  using Seconds = std::chrono::duration<double>;
  LeaseNote note{.what = what,
                 .token = random_token(),
                 .host = host_name(),
                 .process = this_process(),
                 .since = iso_time(std::chrono::system_clock::now()),
                 .time_out_s = Seconds(time_out_).count(),
                 .file_name = file_name(what, last + 1)};
  const std::string text = padded(to_text(note), 0);
  // It exists before its file, so that the file is removed whenever the process ends.
  std::unique_ptr<Lease> lease(new Lease(directory_, note, last + 1, std::move(former)));
  lease->file_ = create_linked(directory_, note.file_name, note.token, text);
  if (lease->file_ < 0) return nullptr;
  constexpr std::chrono::milliseconds shortest{1}, longest = std::chrono::seconds(10);
  const auto beat = [note, size = text.size(), interval = std::clamp(time_out_ / 10, shortest, longest),
                     &lease = std::as_const(*lease)](const std::stop_token& is_over) mutable {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, is_over, interval, [&] { return is_over.stop_requested(); })) {
      ++note.beat;
      note.share_done = lease.share_done_;
      write_whole(lease.file_, padded(to_text(note), size));
    }
  };
  lease->beats_ = std::jthread(beat);
  return lease;
}

// Whether the owner's time-out has passed since this process first read this content. If the note is unreadable, this
// process's own time-out applies.
bool Leases::is_lost(const std::string& file, const std::string& text, const std::optional<LeaseNote>& note) {
  if (note && state_of(note->process) == ProcessState::gone) return true;
  const auto now = std::chrono::steady_clock::now();
  const auto [seen, is_new] = seen_.try_emplace(file, Seen{text, now});
  if (!is_new && seen->second.text != text) seen->second = {text, now};
  const double stated_s = note ? note->time_out_s : 0;
  const auto own = std::chrono::duration<double>(time_out_);
  const auto limit = stated_s > 0 && stated_s <= longest_time_out_s ? std::chrono::duration<double>(stated_s) : own;
  return now - seen->second.since > limit;
}

std::vector<LeaseNote> Leases::held() const {
  std::vector<LeaseNote> notes;
  for (const auto& [what, generations] : generations_in(directory_)) {
    const std::string name = file_name(what, *generations.rbegin());
    const auto content = content_of(directory_ / name);
    if (!content) continue;
    LeaseNote note = content->note.value_or(LeaseNote{});
    note.what = what;
    note.file_name = name;
    notes.push_back(std::move(note));
  }
  return notes;
}

void Leases::remove(const std::string& what) const {
  if (const int last = last_generation(directory_, what); last > 0) remove_up_to(directory_, what, last);
}

std::vector<PlannedRun> planned_runs(const fs::path& results, std::span<const Run> runs) {
  std::vector<PlannedRun> planned;
  for (const Run& run : runs)
    planned.push_back(
        {.hash = run.hash, .label = run_label(run), .seed = run.seed, .directory = run_directory(results, run, false)});
  return planned;
}

void save_plan(const fs::path& folder, std::span<const Run> runs) {
  Json json = Json::array();
  const fs::path above = run_directory("", runs.front(), false);
  const fs::path experiment = *above.begin();
  for (const PlannedRun& run : planned_runs("", runs))
    json.push_back({{"hash", run.hash},
                    {"label", run.label},
                    {"seed", run.seed},
                    {"directory", run.directory.lexically_relative(experiment).generic_string()}});
  replace_file(folder / (runs.front().is_trial ? of_trials : of_runs), with_digest({{"runs", std::move(json)}}));
}

std::optional<std::vector<PlannedRun>> saved_plan(const fs::path& experiment_directory,
                                                  std::vector<std::string>* faults) {
  std::optional<std::vector<PlannedRun>> plan;
  for (const char* const name : {of_trials, of_runs}) {
    const fs::path file = experiment_directory / share_folder / name;
    try {
      const auto text = read_file(file);
      if (!text) continue;
      std::vector<PlannedRun> runs = runs_in(*text, experiment_directory);
      if (!plan) plan.emplace();
      plan->insert(plan->end(), std::move_iterator(runs.begin()), std::move_iterator(runs.end()));
    } catch (const std::exception&) {
      if (faults)
        faults->push_back(
            file.string() +
            ": is not a list of runs, or was changed after it was written; the next process that shares writes it");
    }
  }
  return plan;
}

}  // namespace syncopate
