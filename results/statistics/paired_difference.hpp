// How much two methods differ over seeds that both have run. A seed gives both the same delays, data and first
// parameters, so what the two have in common cancels in the difference of each seed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace syncopate {

inline constexpr double significance_level = 0.05;

struct Interval {
  double low = 0;
  double high = 0;

  bool holds(double value) const { return low <= value && value <= high; }
  bool operator==(const Interval&) const = default;
};

// Whether sign flips of so many differences can reach that level at all (6), and are few enough to be tried (20).
bool can_flip_signs(std::size_t n);

struct PairedDifference {
  std::size_t n = 0;
  double mean = 0;                      // NaN without seeds
  std::optional<Interval> interval{};   // of the mean, 95 %, by Student's t; none below two seeds
  std::optional<double> t_p{};          // two-sided, that the mean is 0; none where all differences are equal
  std::optional<double> sign_flip_p{};  // the same by sign flips; none beyond 20 seeds

  // Whether there is a difference, at 5 %: by the interval, and by sign flips where these can say so at all (6 seeds).
  bool is_significant() const;
};

// Of each seed's difference. The sign-flip permutation test (Fisher 1935) takes every difference to be as likely of
// either sign: its p is the share of the 2^n choices of signs whose mean is at least as far from 0, so that it is never
// below 2 / 2^n, and cannot reach 5 % with fewer than 6 seeds.
PairedDifference paired_difference(std::span<const double> differences);

// The sign-flip test's p that the mean of `values` is this one; none where it cannot say so at 5 % (below 6 values), or
// there are more than 20.
std::optional<double> sign_flip_p(std::span<const double> values, double mean);

// Whether the mean is within (-margin, margin): the larger p of two one-sided t tests (Schuirmann 1987). Equivalence at
// 5 % is where the 90 % interval lies within. None below two differences. margin > 0.
std::optional<double> equivalence_p(std::span<const double> differences, double margin);

// The mean's interval of this confidence, by Student's t; none below two values.
std::optional<Interval> interval_of_mean(std::span<const double> values, double confidence = 0.95);

}  // namespace syncopate
