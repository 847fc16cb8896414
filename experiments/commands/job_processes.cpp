#include "experiments/commands/job_processes.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "results/directory/lease.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/output.hpp"
#include "workers/process/child_process.hpp"
#include "workers/process/exit_status.hpp"

namespace syncopate {
namespace {

// A process ends by itself within a second (interrupt.hpp).
constexpr std::chrono::seconds time_to_end_by_itself{3};

bool has_crashed(int status) {
  if (WIFSIGNALED(status)) return true;
  const int with = WEXITSTATUS(status);
  return with != exit_success && with != exit_failure && with != exit_usage && with != exit_interrupted;
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

JobProcesses::JobProcesses(Options options) : options_(std::move(options)) {}

pid_t JobProcesses::started() const {
  std::vector<std::string> command = options_.command;
  command.insert(command.begin(), own_program());
  command.insert(command.end(), {"--token", std::to_string(token_.descriptor())});
  // Sanitizers take whole address spaces for themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  command.insert(command.end(), {"--memory-part", std::to_string(options_.memory_bytes)});
#endif
  return start_child(std::move(command));
}

void JobProcesses::start() {
  if (std::exchange(has_started_, true)) return;
  while (std::ssize(jobs_) < options_.number) jobs_.push_back(started());
}

// Its lease is still there, since it could not give it back.
bool JobProcesses::was_making_a_run(pid_t job) const {
  const Leases leases(options_.experiment_directory / share_folder / leases_folder, std::chrono::seconds(1));
  return std::ranges::any_of(leases.held(), [job](const LeaseNote& note) { return note.process.number == job; });
}

bool JobProcesses::are_there() {
  std::vector<pid_t> there;
  for (const pid_t job : jobs_) {
    int status = 0;
    const pid_t ended = waitpid(job, &status, WNOHANG);
    if (ended == 0) there.push_back(job);
    if (ended != job || !has_crashed(status)) continue;
    const bool is_replaced = was_making_a_run(job);
    standard_error.write(fmt::format("process {} {}{}\n", job, how_it_ended(status),
                                     is_replaced ? " while it made a run; another one takes its place" : ""));
    if (is_replaced) there.push_back(started());
  }
  jobs_ = std::move(there);
  return !jobs_.empty();
}

JobProcesses::~JobProcesses() {
  for (const pid_t job : jobs_) kill(job, SIGTERM);
  const auto until = std::chrono::steady_clock::now() + time_to_end_by_itself;
  while (!jobs_.empty()) {
    std::erase_if(jobs_, [](pid_t job) { return waitpid(job, nullptr, WNOHANG) != 0; });
    if (std::chrono::steady_clock::now() > until)
      for (const pid_t job : jobs_) kill(job, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace syncopate
