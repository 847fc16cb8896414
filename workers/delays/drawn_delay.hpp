// Delays of which each is a function of one uniform number of its own, as most are.
#pragma once

#include "workers/delays/delay_process.hpp"

namespace syncopate {

class DrawnDelay : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const final;
  void add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const final;

 protected:
  // added_s[i] += the delay that belongs to uniform[i], 0 < uniform[i] < 1. Both are equally long.
  virtual void add_quantiles(std::span<const double> uniform, std::span<double> added_s) const = 0;
};

// For a delay_s(double uniform) that is inlined: a draw costs a few nanoseconds, which a call per draw would double.
template <typename Delay>
void add_each(std::span<const double> uniform, std::span<double> added_s, const Delay& delay_s) {
  for (std::size_t i = 0; i < added_s.size(); ++i) added_s[i] += delay_s(uniform[i]);
}

}  // namespace syncopate
