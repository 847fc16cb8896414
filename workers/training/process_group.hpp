// How the processes that divide a simulation move values between them.
//
// All go through the same run, and so come to the same exchanges in the same order; a number names one on all of them.
// One that is begun goes on by itself, whatever the others do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "workers/training/process_set.hpp"

namespace syncopate {

// Bytes that somebody keeps; a multiple of 4.
struct Payload {
  std::shared_ptr<const void> owner{};
  const void* data = nullptr;
  std::size_t bytes = 0;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int self() const = 0;
  virtual int size() const = 0;  // at most most_processes

  struct Exchange {
    std::uint64_t number = 0;  // from 1; no other one of the run has it
    ProcessSet from{};         // who gives; explicit processes, not `everywhere`
    ProcessSet to{};           // who gets what each of these gives
    Payload mine{};            // where `from` has this process
    // Once what others give is here, in the order of the processes; where nothing is to come, once `mine` has gone.
    // From a thread of the group's, at once or later.
    std::function<void(std::vector<Payload>)> done{};
  };

  // A run begins, on all processes. `on_failure` is called once, from any thread, where a process that this one waits
  // for has ended the run (what() says why), and where the program is interrupted (Interrupted).
  virtual void open(std::function<void(std::exception_ptr)> on_failure) = 0;
  // Each process that gives or gets begins it, in any order. From any thread.
  virtual void begin(Exchange&& exchange) = 0;
  // Once nothing is awaited here: returns when nothing is held any more that was given, either. Throws Interrupted.
  virtual void settle() = 0;
  // From when it returns nothing that was given to this run is called any more, and what is begun is left out.
  virtual void forget() = 0;
  // The run ends, on all processes: waits for them. `failure`: why it has failed on this one; empty: it has not.
  // Returns why it has failed, on all the same; empty: it has not. Throws Interrupted.
  virtual std::string close(const std::string& failure) = 0;
};

}  // namespace syncopate
