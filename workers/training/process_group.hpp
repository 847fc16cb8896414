// How the processes that divide a simulation move values between them.
//
// All go through the same run, and so come to the same exchanges in the same order; a number names one on all of them.
// One that is begun goes on by itself, whatever the others do.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace syncopate {

// Which of the processes that divide a simulation among them.
// At most so many divide one: sets of them are passed around with every value.
inline constexpr int most_processes = 64;

class ProcessSet {
 public:
  constexpr ProcessSet() = default;
  static constexpr ProcessSet none() { return ProcessSet(0); }
  // All that there are, whatever their number; where nothing is divided, the one.
  static constexpr ProcessSet everywhere() { return ProcessSet(~std::uint64_t{0}); }
  static constexpr ProcessSet only(int process) { return ProcessSet(std::uint64_t{1} << process); }

  constexpr bool is_everywhere() const { return *this == everywhere(); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(int process) const { return (bits_ >> process & 1) != 0; }
  constexpr bool covers(ProcessSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr int lowest() const { return std::countr_zero(bits_); }  // of one that is not empty
  // How many of the first `processes`.
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
