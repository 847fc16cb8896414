// Runs tensor work on a pool of threads as soon as its inputs exist, while the simulation goes on.
//
// Tasks are submitted by one thread, in an order in which every prerequisite was submitted before;
// a task that becomes ready because another finished runs next on that same thread, so that a chain
// of local steps keeps its model in that core's cache. Results never depend on the number of
// threads: a task's arithmetic is sequential, and sums are ordered by the task that forms them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace syncopate {

class Task {
 public:
  explicit Task(std::function<void()> work) : work_(std::move(work)) {}

 private:
  friend class Executor;
  std::function<void()> work_;  // released when run, and with it the inputs it holds
  std::vector<std::shared_ptr<Task>> successors_;
  int missing_ = 0;  // prerequisites not yet done
  bool done_ = false;
};

class Executor {
 public:
  // threads = 0: every task runs at once in the submitting thread (MPI ranks, tests).
  explicit Executor(int threads);
  ~Executor();  // waits for running tasks, forgets the others
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Null prerequisites are ignored. Blocks while too much work is outstanding, which keeps memory
  // flat. Rethrows the first exception a task has thrown, which is Interrupted where one would begin after Ctrl-C.
  std::shared_ptr<Task> submit(std::function<void()> work, std::span<const std::shared_ptr<Task>> prerequisites = {});

  // Waits until the task (null: nothing) or all submitted tasks are done; rethrows as submit does.
  void wait(const std::shared_ptr<Task>& task);
  void wait_all();

  int threads() const { return static_cast<int>(pool_.size()); }

 private:
  void work_loop();
  std::shared_ptr<Task> run_one(std::shared_ptr<Task> task, std::unique_lock<std::mutex>& lock);
  void rethrow_failure(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable progress_;
  std::deque<std::shared_ptr<Task>> ready_;
  std::size_t outstanding_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> pool_;
};

}  // namespace syncopate
