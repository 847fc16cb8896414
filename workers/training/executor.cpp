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

// Enough for every worker's next round of local steps; few enough to keep lists of waiting micro-batches short.
constexpr std::size_t most_outstanding = 2048;
// A blocked submit() resumes at this number: waking up after every task would cost more than a small task.
constexpr std::size_t enough_room = most_outstanding - 16;

// A successor that is at most this many tasks ahead of the first ready one may run before it.
constexpr std::uint64_t farthest_ahead = 128;

constexpr std::chrono::microseconds patience{50};

// Flat vectors and gradients of a megabyte come and go at every step. By default glibc maps and unmaps such blocks, and
// the page faults cost a tenth of a step. The heap reuses them instead.
void keep_large_blocks_in_the_heap() {
  static const bool done = [] {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    return true;
  }();
  (void)done;
}

// In a replay, another process has already run the tasks submitted now.
bool is_skipped() {
  const CheckpointLog* const log = CheckpointLog::here();
  return log && log->replays();
}

// Called before a read of values that no task has written.
void fail_if_skipped() {
  if (is_skipped()) throw ReplayMismatch("a value is read that is not kept (CheckpointLog::numbers_of)");
}

// Orders the heap: the task that was submitted first comes first.
constexpr auto submitted_later = [](const auto& a, const auto& b) { return *b < *a; };

}  // namespace

Executor::Executor(int threads) {
  keep_large_blocks_in_the_heap();
  try {
    for (int i = 0; i < threads; ++i) pool_.emplace_back([this] { work_loop(); });
  } catch (const std::system_error&) {
    stop();  // nobody would wait for threads that already run, and they would end the program
    throw std::runtime_error(
        fmt::format("the memory does not suffice for the stacks of {} threads, or a limit on their number is reached; "
                    "must be more, or fewer --threads",
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
  // A task holds the cell that it would have filled, and the cell holds its task: neither would ever be freed.
  while (!ready_.empty()) {
    const auto task = std::move(ready_.back());
    ready_.pop_back();
    task->work_ = nullptr;
    task->begin_elsewhere_ = nullptr;
    for (auto& successor : std::exchange(task->successors_, {})) ready_.push_back(std::move(successor));
  }
}

std::shared_ptr<Task> Executor::submit(std::function<void()> work,
                                       std::span<const std::shared_ptr<Task>> prerequisites) {
  if (is_skipped()) return nullptr;
  if (pool_.empty()) {  // all prerequisites have already run
    throw_if_interrupted();
    work();
    return nullptr;
  }
  return submit(std::make_shared<Task>(std::move(work)), prerequisites);
}

std::shared_ptr<Task> Executor::submit_elsewhere(std::function<void(const std::shared_ptr<Task>&)> begin,
                                                 std::span<const std::shared_ptr<Task>> prerequisites) {
  assert(!pool_.empty() && !is_skipped());
  auto task = std::make_shared<Task>(nullptr);
  task->begin_elsewhere_ = std::move(begin);
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
  if (task->done_) return;  // already ended, by an exception from `begin`
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
  fail_if_skipped();
  if (!task) return;
  std::unique_lock lock(mutex_);
  wait_for({.task = task.get()}, lock);
}

void Executor::wait_all() {
  fail_if_skipped();
  std::unique_lock lock(mutex_);
  wait_for({.outstanding = 0}, lock);
}

// Keeps the failure: after one failed task no later result can be trusted.
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

// Spins for a moment: between two parts of a step there is often no task for some microseconds, and waking up takes
// longer.
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

// Returns a task that became ready by this one, to run next on this thread.
std::shared_ptr<Task> Executor::run(const std::shared_ptr<Task>& task, std::unique_lock<std::mutex>& lock) {
  const bool inputs_exist = !failure_;  // after a failure, inputs may never have been made
  const bool ends_elsewhere = task->begin_elsewhere_ && inputs_exist;
  if (ends_elsewhere) elsewhere_.insert(task);
  lock.unlock();
  std::exception_ptr failure;
  try {
    if (inputs_exist) {
      throw_if_interrupted();  // the thread that waits for the tasks rethrows it
      if (ends_elsewhere)
        task->begin_elsewhere_(task);
      else
        task->work_();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  task->work_ = nullptr;  // releases the inputs, outside the lock
  task->begin_elsewhere_ = nullptr;
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
