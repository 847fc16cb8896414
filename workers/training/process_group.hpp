// How the processes that divide a simulation exchange values. All processes execute the same run and number its
// exchanges in the same order, so a number identifies an exchange. Once begun, an exchange completes without further
// calls.
#pragma once

#include <bit>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace syncopate {

inline constexpr int most_processes = 64;  // a value's set of processes is a 64-bit mask

// A set of the processes that divide a simulation.
class ProcessSet {
 public:
  constexpr ProcessSet() = default;
  static constexpr ProcessSet none() { return ProcessSet(0); }
  // All processes, whatever their number. If work is not divided, this process.
  static constexpr ProcessSet everywhere() { return ProcessSet(~std::uint64_t{0}); }
  static constexpr ProcessSet only(int process) { return ProcessSet(std::uint64_t{1} << process); }

  constexpr bool is_everywhere() const { return *this == everywhere(); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(int process) const { return (bits_ >> process & 1) != 0; }
  constexpr bool covers(ProcessSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr int lowest() const { return std::countr_zero(bits_); }  // the set must not be empty
  // The number of members among the first `processes` processes.
  constexpr int count(int processes) const { return std::popcount(bits_ & first(processes).bits_); }

  static constexpr ProcessSet first(int processes) {
    return processes >= most_processes ? everywhere() : ProcessSet((std::uint64_t{1} << processes) - 1);
  }
  constexpr ProcessSet without(ProcessSet others) const { return ProcessSet(bits_ & ~others.bits_); }
  friend constexpr ProcessSet operator|(ProcessSet a, ProcessSet b) { return ProcessSet(a.bits_ | b.bits_); }
  friend constexpr ProcessSet operator&(ProcessSet a, ProcessSet b) { return ProcessSet(a.bits_ & b.bits_); }
  constexpr bool operator==(const ProcessSet&) const = default;

 private:
  constexpr explicit ProcessSet(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = ~std::uint64_t{0};
};

// Bytes and an owner that keeps them alive. The number of bytes is a multiple of 4.
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
    std::uint64_t number = 0;  // counted from 1, unique within the run
    ProcessSet from{};         // senders, as explicit processes instead of `everywhere`
    ProcessSet to{};           // receivers; each one gets every sender's payload
    Payload mine{};            // payload of this process, if it is in `from`
    // Called in the group's thread with the payloads of the other processes, ordered by process. If no payloads are
    // received, it is called once `mine` has been sent.
    std::function<void(std::vector<Payload>)> done{};
  };

  // Begins a run on all processes. Calls `on_failure` at most once, from any thread: if this process waits for a
  // process that has ended the run (what() says why), or if the program is interrupted (Interrupted).
  virtual void open(std::function<void(std::exception_ptr)> on_failure) = 0;
  // Begins an exchange. Every sender and receiver must call it, in any order of exchanges. Any thread may call it.
  virtual void begin(Exchange&& exchange) = 0;
  // Returns once the group holds no payload. Call it when no exchange is pending in this process. Throws Interrupted.
  virtual void settle() = 0;
  // After this call the run's functions are no longer called, and new exchanges are ignored.
  virtual void forget() = 0;
  // Ends the run on all processes and waits for them. `failure`: why the run has failed in this process; empty if it
  // has not. Returns the same text on all processes: why the run has failed, or an empty text. Throws Interrupted.
  virtual std::string close(const std::string& failure) = 0;
};

}  // namespace syncopate
