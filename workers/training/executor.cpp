#include "workers/training/executor.hpp"

#include <malloc.h>

#include <utility>

#include "workers/interrupt.hpp"

namespace syncopate {

namespace {

// Enough for every worker's next round of local steps to be in the queue, few enough that the lists
// of micro-batches waiting for evaluation stay small.
constexpr std::size_t most_outstanding = 2048;

// Flat vectors and gradients of a megabyte come and go at every step. By default glibc maps and
// unmaps such blocks, and the page faults cost a tenth of a step; from the heap they are reused.
void keep_large_blocks_in_the_heap() {
  static const bool done = [] {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    return true;
  }();
  (void)done;
}

}  // namespace

Executor::Executor(int threads) {
  keep_large_blocks_in_the_heap();
  for (int i = 0; i < threads; ++i) pool_.emplace_back([this] { work_loop(); });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_available_.notify_all();
  for (auto& thread : pool_) thread.join();
  // A task holds the cell that it would have filled, and the cell its task: neither would ever be freed.
  for (; !ready_.empty(); ready_.pop_front()) {
    Task& task = *ready_.front();
    task.work_ = nullptr;
    for (auto& successor : std::exchange(task.successors_, {})) ready_.push_back(std::move(successor));
  }
}

std::shared_ptr<Task> Executor::submit(std::function<void()> work,
                                       std::span<const std::shared_ptr<Task>> prerequisites) {
  if (pool_.empty()) {  // every prerequisite has already run
    throw_if_interrupted();
    work();
    return nullptr;
  }
  auto task = std::make_shared<Task>(std::move(work));
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return outstanding_ < most_outstanding || failure_; });
  rethrow_failure(lock);
  ++outstanding_;
  for (const auto& prerequisite : prerequisites) {
    if (!prerequisite || prerequisite->done_) continue;
    prerequisite->successors_.push_back(task);
    ++task->missing_;
  }
  if (task->missing_ == 0) {
    ready_.push_back(task);
    lock.unlock();
    work_available_.notify_one();
  }
  return task;
}

void Executor::wait(const std::shared_ptr<Task>& task) {
  if (!task) return;
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return task->done_ || failure_; });
  rethrow_failure(lock);
}

void Executor::wait_all() {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return outstanding_ == 0 || failure_; });
  rethrow_failure(lock);
}

// Keeps the failure: after one failed task nothing that follows can be trusted.
void Executor::rethrow_failure(std::unique_lock<std::mutex>&) {
  if (failure_) std::rethrow_exception(failure_);
}

void Executor::work_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_available_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
    if (stopping_) return;
    auto task = std::move(ready_.front());
    ready_.pop_front();
    while (task) task = run_one(std::move(task), lock);
  }
}

// Runs a task and returns one that it made ready, to be run next on this thread.
std::shared_ptr<Task> Executor::run_one(std::shared_ptr<Task> task, std::unique_lock<std::mutex>& lock) {
  const bool inputs_exist = !failure_;  // after a failure a task may find inputs that were never made
  lock.unlock();
  std::exception_ptr failure;
  try {
    if (inputs_exist) {
      throw_if_interrupted();  // whoever waits for the tasks then goes on with that
      task->work_();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  task->work_ = nullptr;  // releases the inputs, outside the lock
  lock.lock();
  if (failure && !failure_) failure_ = failure;
  task->done_ = true;
  --outstanding_;
  std::shared_ptr<Task> next;
  bool more = false;
  for (auto& successor : task->successors_) {
    if (--successor->missing_ > 0) continue;
    if (!next) {
      next = std::move(successor);
    } else {
      ready_.push_front(std::move(successor));
      more = true;
    }
  }
  task->successors_.clear();
  progress_.notify_all();
  if (more) work_available_.notify_all();
  if (!stopping_ || !next) return next;
  ready_.push_front(std::move(next));
  return nullptr;
}

}  // namespace syncopate
