// Processes that divide a simulation, represented by threads of a test that exchange copies in memory. Lost and slow
// processes cannot be tested in this way; tests under mpirun do that.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "workers/base/process.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

class ThreadsAsProcesses {
 public:
  explicit ThreadsAsProcesses(int size) : calls_(static_cast<std::size_t>(size)) {
    for (int process = 0; process < size; ++process) members_.push_back(std::make_unique<Member>(*this, process));
  }
  ProcessGroup& member(int process) { return *members_[static_cast<std::size_t>(process)]; }
  // The number of floats that processes have sent to each other.
  std::size_t moved_floats() const {
    const std::lock_guard lock(mutex_);
    return moved_bytes_ / sizeof(float);
  }

  // Calls `program` in one thread per process, and waits for all threads.
  void run(const std::function<void(ProcessGroup&)>& program) {
    std::vector<std::thread> threads;
    for (const auto& member : members_) threads.emplace_back([&] { program(*member); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Member : public ProcessGroup {
   public:
    Member(ThreadsAsProcesses& all, int self) : all_(all), self_(self) {}
    int self() const override { return self_; }
    int size() const override { return static_cast<int>(all_.members_.size()); }
    void open(std::function<void(std::exception_ptr)> on_failure) override {
      {
        const std::lock_guard lock(calling_);
        is_forgotten_ = false;
        on_failure_ = std::move(on_failure);
      }
      if (const auto why = all_.failure()) fail(*why);  // another process has already failed
    }
    void begin(Exchange&& exchange) override { all_.begin(self_, std::move(exchange)); }
    void settle() override { all_.settle(self_); }
    void forget() override {
      const std::lock_guard lock(calling_);
      is_forgotten_ = true;
      on_failure_ = nullptr;
    }
    std::string close(const std::string& failure) override { return all_.close(failure); }

    void call(const std::function<void()>& what) {
      const std::lock_guard lock(calling_);
      if (!is_forgotten_) what();
    }
    void fail(const std::string& why) {
      const std::lock_guard lock(calling_);
      if (!is_forgotten_ && on_failure_) on_failure_(std::make_exception_ptr(RunFailure(why)));
    }

   private:
    ThreadsAsProcesses& all_;
    int self_;
    std::mutex calling_;
    bool is_forgotten_ = true;
    std::function<void(std::exception_ptr)> on_failure_;
  };

  struct Open {
    std::map<int, Payload> given;
    std::map<int, ProcessGroup::Exchange> taking;  // by process, as long as it waits for messages
    int missing = 0;                               // processes that have not yet received all messages
  };
  using Calls = std::vector<std::pair<int, std::function<void()>>>;  // process, call

  void begin(int self, ProcessGroup::Exchange&& exchange) {
    Calls calls;
    {
      const std::lock_guard lock(mutex_);
      const auto [at, is_first] = open_.try_emplace(exchange.number);
      Open& open = at->second;
      if (is_first) open.missing = exchange.to.count(size());
      const bool takes = exchange.to.has(self);
      if (exchange.from.has(self)) {
        open.given.emplace(self, exchange.mine);
        moved_bytes_ +=
            exchange.mine.bytes * static_cast<std::size_t>(exchange.to.without(ProcessSet::only(self)).count(size()));
        if (!takes) calls.emplace_back(self, call_of(self, exchange, {}));
      }
      if (takes) open.taking.emplace(self, std::move(exchange));
      hand_out(open, calls);
      if (open.missing == 0) open_.erase(at);
      for (const auto& [process, call] : calls) ++calls_[static_cast<std::size_t>(process)];
    }
    changed_.notify_all();
    for (auto& [process, call] : calls) {
      std::exchange(call, nullptr)();
      const std::lock_guard lock(mutex_);
      --calls_[static_cast<std::size_t>(process)];
      changed_.notify_all();
    }
  }

  // Delivers to every process that has all messages it waits for.
  void hand_out(Open& open, Calls& calls) const {
    for (auto at = open.taking.begin(); at != open.taking.end();) {
      auto& [process, taken] = *at;
      std::vector<Payload> payloads;
      bool is_complete = true;
      for (int from = 0; from < size() && is_complete; ++from) {
        if (!taken.from.has(from) || from == process) continue;
        const auto found = open.given.find(from);
        is_complete = found != open.given.end();
        if (is_complete) payloads.push_back(copy_of(found->second));
      }
      if (is_complete) {
        calls.emplace_back(process, call_of(process, std::move(taken), std::move(payloads)));
        --open.missing;
      }
      at = is_complete ? open.taking.erase(at) : std::next(at);
    }
  }

  static Payload copy_of(const Payload& payload) {
    const auto* const bytes = reinterpret_cast<const char*>(payload.data);
    const auto owner = std::make_shared<const std::vector<char>>(bytes, bytes + payload.bytes);
    return {.owner = owner, .data = owner->data(), .bytes = payload.bytes};
  }

  void settle(int self) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const bool is_held =
          std::ranges::any_of(open_, [&](const auto& open) { return open.second.given.contains(self); });
      return failure_ || (!is_held && calls_[static_cast<std::size_t>(self)] == 0);
    });
  }

  std::function<void()> call_of(int process, ProcessGroup::Exchange exchange, std::vector<Payload> payloads) const {
    return [member = members_[static_cast<std::size_t>(process)].get(), done = std::move(exchange.done),
            payloads = std::move(payloads)] { member->call([&] { done(payloads); }); };
  }

  std::optional<std::string> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Makes all processes fail that wait for a failed one. When the last process has closed, calls belong to the next
  // run.
  std::string close(const std::string& failure) {
    std::unique_lock lock(mutex_);
    if (!failure.empty() && !failure_) failure_ = failure;
    if (failure_) {
      const std::string why = *failure_;
      lock.unlock();
      changed_.notify_all();
      for (const auto& member : members_) member->fail(why);
      lock.lock();
    }
    const int run = runs_;
    if (++ended_ == size()) {
      result_ = std::exchange(failure_, std::nullopt).value_or("");
      open_.clear();
      ended_ = 0;
      ++runs_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return runs_ != run; });
    return result_;
  }

  int size() const { return static_cast<int>(members_.size()); }

  std::vector<std::unique_ptr<Member>> members_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Open> open_;
  std::vector<int> calls_;  // calls in progress, by process
  std::size_t moved_bytes_ = 0;
  std::optional<std::string> failure_;  // failure of this run
  std::string result_;                  // failure of the previous run
  int ended_ = 0, runs_ = 0;
};

}  // namespace syncopate
