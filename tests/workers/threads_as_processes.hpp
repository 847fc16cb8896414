// Processes that divide a simulation, as threads of a test: exchanges are handed over in memory. What is lost with a
// process, or is slow, is not to be seen here; the same tests under mpirun see it.
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

#include "workers/process/run_failure.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

class ThreadsAsProcesses {
 public:
  explicit ThreadsAsProcesses(int size) {
    for (int process = 0; process < size; ++process) members_.push_back(std::make_unique<Member>(*this, process));
  }
  ProcessGroup& member(int process) { return *members_[static_cast<std::size_t>(process)]; }
  // Floats that have gone from one process to another.
  std::size_t moved_floats() const {
    const std::lock_guard lock(mutex_);
    return moved_bytes_ / sizeof(float);
  }

  // Calls `program` on each process, as a thread, and waits for all.
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
      if (const auto why = all_.failure()) fail(*why);  // of one that was faster
    }
    void begin(Exchange&& exchange) override { all_.begin(self_, std::move(exchange)); }
    void forget() override {
      const std::lock_guard lock(calling_);
      is_forgotten_ = true;
      on_failure_ = nullptr;
    }
    std::string close(const std::string& failure) override { return all_.close(self_, failure); }

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
    std::map<int, ProcessGroup::Exchange> taking;  // by process, until it has got all
  };

  void begin(int self, ProcessGroup::Exchange&& exchange) {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex_);
      Open& open = open_[exchange.number];
      const bool takes = exchange.to.has(self);
      if (exchange.from.has(self)) {
        open.given.emplace(self, exchange.mine);
        moved_bytes_ +=
            exchange.mine.bytes * static_cast<std::size_t>(exchange.to.without(ProcessSet::only(self)).count(size()));
        if (!takes) calls.push_back(call_of(self, exchange, {}));
      }
      if (takes) open.taking.emplace(self, exchange);
      for (auto at = open.taking.begin(); at != open.taking.end();) {
        const auto& [process, taken] = *at;
        std::vector<Payload> payloads;
        bool is_complete = true;
        for (int from = 0; from < size(); ++from) {
          if (!taken.from.has(from) || from == process) continue;
          const auto found = open.given.find(from);
          is_complete &= found != open.given.end();
          if (is_complete) payloads.push_back(found->second);
        }
        if (is_complete) calls.push_back(call_of(process, taken, std::move(payloads)));
        at = is_complete ? open.taking.erase(at) : std::next(at);
      }
    }
    for (const auto& call : calls) call();
  }

  std::function<void()> call_of(int process, const ProcessGroup::Exchange& exchange, std::vector<Payload> payloads) {
    return [member = members_[static_cast<std::size_t>(process)].get(), done = exchange.done,
            payloads = std::move(payloads)] { member->call([&] { done(payloads); }); };
  }

  std::optional<std::string> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // All that wait for somebody who has failed fail too.
  std::string close(int self, const std::string& failure) {
    std::unique_lock lock(mutex_);
    if (!failure.empty() && !failure_) failure_ = failure;
    ends_.push_back(self);
    if (failure_) {
      const std::string why = *failure_;
      lock.unlock();
      for (const auto& member : members_) member->fail(why);
      lock.lock();
    }
    all_ended_.notify_all();
    all_ended_.wait(lock, [this] { return static_cast<int>(ends_.size()) == size(); });
    return failure_.value_or("");
  }

  int size() const { return static_cast<int>(members_.size()); }

  std::vector<std::unique_ptr<Member>> members_;
  mutable std::mutex mutex_;
  std::condition_variable all_ended_;
  std::map<std::uint64_t, Open> open_;
  std::size_t moved_bytes_ = 0;
  std::vector<int> ends_;
  std::optional<std::string> failure_;
};

}  // namespace syncopate
