// Runs tensor work on a pool of threads as soon as its inputs exist, while the simulation continues.
//
// One thread submits the tasks; prerequisites are submitted first. If the end of a task makes a successor ready, such
// as the next local step, the successor runs next on the same thread, because its inputs are in that thread's cache.
// All other ready tasks run in the order of submission. They also run before a successor that was submitted much later
// than they were, so that few results wait in memory. Results never depend on the number of threads, because tasks are
// sequential and one task adds up each sum in a fixed order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace syncopate {

class Task : public std::enable_shared_from_this<Task> {
 public:
  explicit Task(std::function<void()> work) : work_(std::move(work)) {}
  bool operator<(const Task& other) const { return number_ < other.number_; }  // whether it was submitted earlier

 private:
  friend class Executor;
  std::function<void()> work_;  // destroyed after it has run, which releases its inputs
  std::vector<std::shared_ptr<Task>> successors_;
  std::uint64_t number_ = 0;     // order of submission
  int missing_ = 0;              // number of prerequisites that are not done yet
  bool ends_elsewhere_ = false;  // work_ only begins the task (submit_elsewhere)
  bool done_ = false;
};

class Executor {
 public:
  // threads = 0: every task runs immediately in the submitting thread (MPI ranks, tests).
  explicit Executor(int threads);
  ~Executor();  // waits for running tasks and discards the others
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Submits a task. Null prerequisites are ignored. Blocks while too many tasks are outstanding, which limits memory.
  // Rethrows the first exception of a task. After Ctrl-C, the next task that would begin throws Interrupted.
  std::shared_ptr<Task> submit(std::function<void()> work, std::span<const std::shared_ptr<Task>> prerequisites = {});

  // Submits a task that is only started by `begin` and ends elsewhere, such as an exchange with another process.
  // Exactly one call of end() ends it, from any thread, possibly within `begin`. The executor must have threads.
  std::shared_ptr<Task> submit_elsewhere(std::function<void(const std::shared_ptr<Task>&)> begin,
                                         std::span<const std::shared_ptr<Task>> prerequisites = {});
  void end(const std::shared_ptr<Task>& task);
  // Makes the executor fail as if a task had thrown the exception. Any thread may call it.
  void fail(std::exception_ptr failure);

  // Wait until the task or all submitted tasks are done; a null task is done. They rethrow exceptions as submit() does.
  void wait(const std::shared_ptr<Task>& task);
  void wait_all();

  int threads() const { return static_cast<int>(pool_.size()); }

 private:
  // The submitting thread waits until `task` ends or, if it is null, until at most `outstanding` tasks are unfinished.
  struct Awaited {
    const Task* task = nullptr;
    std::size_t outstanding = 0;
  };

  void stop();
  std::shared_ptr<Task> submit(std::shared_ptr<Task> task, std::span<const std::shared_ptr<Task>> prerequisites);
  std::shared_ptr<Task> finish(const std::shared_ptr<Task>& task);
  void work_loop();
  void look_for_work(std::unique_lock<std::mutex>& lock);
  std::shared_ptr<Task> run(const std::shared_ptr<Task>& task, std::unique_lock<std::mutex>& lock);
  void make_ready(std::shared_ptr<Task> task);
  void wait_for(const Awaited& awaited, std::unique_lock<std::mutex>& lock);
  bool has_come(const Awaited& awaited) const {
    return failure_ || (awaited.task ? awaited.task->done_ : outstanding_ <= awaited.outstanding);
  }

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable progress_;
  std::vector<std::shared_ptr<Task>> ready_;   // a heap, by order of submission
  std::atomic<std::size_t> ready_count_ = 0;   // size of ready_, for checks without the lock
  std::set<std::shared_ptr<Task>> elsewhere_;  // tasks of submit_elsewhere() that have begun and not ended
  std::uint64_t last_number_ = 0;
  std::size_t outstanding_ = 0;
  int idle_ = 0;                      // number of sleeping threads
  const Awaited* awaited_ = nullptr;  // local variable of the submitting thread
  std::atomic<bool> stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> pool_;
};

}  // namespace syncopate
