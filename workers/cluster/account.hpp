// What workers spend their time on.
#pragma once

#include <array>
#include <cstddef>

#include "workers/units/units.hpp"

namespace syncopate {

// Every worker-second is exactly one of these five; over all workers they sum to N x T.
enum class Activity { compute, discarded, wait, communicate, down };
inline constexpr std::size_t activities = 5;
inline constexpr std::array<const char*, activities> activity_names = {"compute", "discarded", "wait", "communicate",
                                                                       "down"};
struct Account {
  std::array<Duration, activities> time{};
  Duration& operator[](Activity activity) { return time[static_cast<std::size_t>(activity)]; }
  Duration operator[](Activity activity) const { return time[static_cast<std::size_t>(activity)]; }
  // Time that counted as computing was for nothing.
  void lose(Duration spent) {
    (*this)[Activity::compute] -= spent;
    (*this)[Activity::discarded] += spent;
  }
  Duration total() const;
};

}  // namespace syncopate
