// Which of the processes that divide a simulation among them.
#pragma once

#include <bit>
#include <cstdint>

namespace syncopate {

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

}  // namespace syncopate
