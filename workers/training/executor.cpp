#include "workers/training/executor.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

namespace {

// Large enough for every worker's next round of local steps, small enough to keep lists of waiting micro-batches short.
constexpr std::size_t most_outstanding = 2048;
// A blocked submit() resumes at this number of outstanding tasks, because waking up costs more than a small task.
constexpr std::size_t enough_room = most_outstanding - 16;

// A successor may run before the first ready task if at most this many tasks were submitted between them.
constexpr std::uint64_t farthest_ahead = 128;

constexpr std::chrono::microseconds patience{50};

// Every step allocates and frees vectors of megabytes. By default glibc maps and unmaps blocks of this size, and the
// page faults cost a tenth of a step's time. With these settings the heap reuses the blocks.
void keep_large_blocks_in_the_heap() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

// Call this before values are read. In a replay no task has written them.
void fail_in_a_replay() {
  if (CheckpointLog::replays_here())
    throw ReplayMismatch("the replay reads a value that is not logged (see CheckpointLog::numbers_of)");
}

// Orders the heap so that the task that was submitted first is at the front.
constexpr auto submitted_later = [](const auto& a, const auto& b) { return *b < *a; };

}  // namespace

Executor::Executor(int threads) {
  keep_large_blocks_in_the_heap();
  try {
    for (int i = 0; i < threads; ++i) pool_.emplace_back([this] { work_loop(); });
  } catch (const std::system_error&) {
    stop();  // destroying threads that are not joined would end the program
    throw std::runtime_error(
        fmt::format("the memory does not suffice for the stacks of {} threads, or the limit on their number is "
                    "reached; raise the limit or use fewer --threads",
                    threads));
  }
}

void Executor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_available_.notify_all();
  for (auto& thread : pool_) thread.join();
}

Executor::~Executor() {
  stop();
  ready_.insert(ready_.end(), elsewhere_.begin(), elsewhere_.end());
  elsewhere_.clear();
  // A task holds the cell that it was to fill, and the cell holds its task. Breaks these cycles to free both.
  while (!ready_.empty()) {
    const auto task = std::move(ready_.back());
    ready_.pop_back();
    task->work_ = nullptr;
    for (auto& successor : std::exchange(task->successors_, {})) ready_.push_back(std::move(successor));
  }
}

std::shared_ptr<Task> Executor::submit(std::function<void()> work,
                                       std::span<const std::shared_ptr<Task>> prerequisites) {
  if (CheckpointLog::replays_here()) return nullptr;  // another process has already run the task
  if (pool_.empty()) {                                // without threads, all prerequisites have already run
    throw_if_interrupted();
    work();
    return nullptr;
  }
  return submit(std::make_shared<Task>(std::move(work)), prerequisites);
}

std::shared_ptr<Task> Executor::submit_elsewhere(std::function<void(const std::shared_ptr<Task>&)> begin,
                                                 std::span<const std::shared_ptr<Task>> prerequisites) {
  assert(!pool_.empty() && !CheckpointLog::replays_here());
  auto task = std::make_shared<Task>(nullptr);
  task->work_ = [own = task.get(), begin = std::move(begin)] { begin(own->shared_from_this()); };
  task->ends_elsewhere_ = true;
  return submit(std::move(task), prerequisites);
}

std::shared_ptr<Task> Executor::submit(std::shared_ptr<Task> task,
                                       std::span<const std::shared_ptr<Task>> prerequisites) {
  std::unique_lock lock(mutex_);
  if (outstanding_ >= most_outstanding) wait_for({.outstanding = enough_room}, lock);
  if (failure_) std::rethrow_exception(failure_);
  ++outstanding_;
  task->number_ = ++last_number_;
  for (const auto& prerequisite : prerequisites) {
    if (!prerequisite || prerequisite->done_) continue;
    prerequisite->successors_.push_back(task);
    ++task->missing_;
  }
  if (task->missing_ > 0) return task;
  make_ready(task);
  const bool wakes = idle_ > 0;
  lock.unlock();
  if (wakes) work_available_.notify_one();
  return task;
}

void Executor::end(const std::shared_ptr<Task>& task) {
  const std::lock_guard lock(mutex_);
  if (task->done_) return;  // an exception from `begin` has already ended it
  elsewhere_.erase(task);
  if (auto next = finish(task)) make_ready(std::move(next));
  if (idle_ > 0 && !ready_.empty()) work_available_.notify_one();
}

void Executor::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  progress_.notify_one();
}

void Executor::wait(const std::shared_ptr<Task>& task) {
  fail_in_a_replay();
  if (!task) return;
  std::unique_lock lock(mutex_);
  wait_for({.task = task.get()}, lock);
}

void Executor::wait_all() {
  fail_in_a_replay();
  std::unique_lock lock(mutex_);
  wait_for({.outstanding = 0}, lock);
}

// Does not clear the failure, because after one failed task no later result can be trusted.
void Executor::wait_for(const Awaited& awaited, std::unique_lock<std::mutex>& lock) {
  awaited_ = &awaited;
  progress_.wait(lock, [&] { return has_come(awaited); });
  awaited_ = nullptr;
  if (failure_) std::rethrow_exception(failure_);
}

void Executor::make_ready(std::shared_ptr<Task> task) {
  ready_.push_back(std::move(task));
  std::push_heap(ready_.begin(), ready_.end(), submitted_later);
  ready_count_ = ready_.size();
}

void Executor::work_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (ready_.empty() && !stopping_) look_for_work(lock);
    if (stopping_) return;
    if (ready_.empty()) continue;
    std::pop_heap(ready_.begin(), ready_.end(), submitted_later);
    auto task = std::move(ready_.back());
    ready_.pop_back();
    ready_count_ = ready_.size();
    while (task && !stopping_) task = run(task, lock);
    if (task) make_ready(std::move(task));
  }
}

// Spins for a moment before it sleeps. Between two parts of a step there is often no task for some microseconds, and
// waking up takes longer than that.
void Executor::look_for_work(std::unique_lock<std::mutex>& lock) {
  using Clock = std::chrono::steady_clock;
  lock.unlock();
  for (const auto end = Clock::now() + patience; ready_count_ == 0 && !stopping_ && Clock::now() < end;)
    std::this_thread::yield();
  lock.lock();
  ++idle_;
  work_available_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
  --idle_;
}

// Runs the task. Returns a successor that has become ready, to run next on this thread; null if there is none.
std::shared_ptr<Task> Executor::run(const std::shared_ptr<Task>& task, std::unique_lock<std::mutex>& lock) {
  const bool inputs_exist = !failure_;  // after a failure, inputs may not have been computed
  const bool ends_elsewhere = task->ends_elsewhere_ && inputs_exist;
  if (ends_elsewhere) elsewhere_.insert(task);
  lock.unlock();
  std::exception_ptr failure;
  try {
    if (inputs_exist) {
      throw_if_interrupted();  // rethrown by the submitting thread
      task->work_();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  task->work_ = nullptr;  // releases the inputs, outside the lock
  lock.lock();
  if (failure && !failure_) failure_ = failure;
  if (ends_elsewhere && !failure) return nullptr;
  elsewhere_.erase(task);
  return finish(task);
}

std::shared_ptr<Task> Executor::finish(const std::shared_ptr<Task>& task) {
  task->done_ = true;
  --outstanding_;
  std::shared_ptr<Task> next;
  for (auto& successor : std::exchange(task->successors_, {})) {  // in the order of submission
    if (--successor->missing_ > 0) continue;
    const bool is_near = ready_.empty() || successor->number_ <= ready_.front()->number_ + farthest_ahead;
    if (!next && is_near)
      next = std::move(successor);
    else
      make_ready(std::move(successor));
  }
  for (auto more = std::min(ready_.size(), static_cast<std::size_t>(idle_)); more > 0; --more)
    work_available_.notify_one();
  if (awaited_ && has_come(*awaited_)) progress_.notify_one();
  return next;
}

}  // namespace syncopate
