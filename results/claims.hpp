// Whether a claim is reproduced by the runs that are there.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/claims/claim.hpp"
#include "results/statistics/paired_difference.hpp"
#include "results/tables/result_rows.hpp"

namespace syncopate {

enum class Verdict { reproduced, not_reproduced, inconclusive };
std::string to_string(Verdict verdict);  // "reproduced", "not reproduced", "inconclusive"

// Of times to a target that not every seed reached: these count up to a horizon.
struct Restriction {
  double horizon_s = 0;
  std::size_t own_reached = 0, other_reached = 0;  // by then, of n seeds each

  bool operator==(const Restriction&) const = default;
};

// At one point of what is swept, or of one pair of neighbours of an order.
struct JudgedPoint {
  std::string label;  // empty where there is one alone
  std::size_t n = 0;  // seeds
  double mean = 0;
  std::optional<Interval> interval{};  // of the criterion's confidence; none below two seeds
  // By sign flips, that the mean is the bound of the criterion that the interval excludes; of two bounds the larger p.
  // None where they have no say: fewer than 6 or more than 20 seeds, a margin, an interval that holds both answers; or
  // where the claim was judged by the interval alone, as it was before they had one.
  std::optional<double> sign_flip_p{};
  std::optional<Restriction> restricted{};
  Verdict verdict = Verdict::inconclusive;
};

struct ClaimResult {
  Claim claim;
  Verdict verdict = Verdict::inconclusive;
  std::string reason;  // where it is inconclusive: why
  std::vector<JudgedPoint> points;
};

// What the interval of the mean over seeds says, for this criterion: wholly where the criterion wants it, reproduced;
// wholly outside, not reproduced; else, and below two seeds, inconclusive.
Verdict verdict_of(const Criterion& criterion, Effect effect, const std::optional<Interval>& interval);

// Of a verdict by the interval: the bounds on which it rests, which it has the mean on one side of. None for a margin,
// for which two one-sided tests are the interval's, and where it is inconclusive.
std::vector<double> bounds_of(const Criterion& criterion, Verdict verdict, const Interval& interval);

// Whether sign flips would have had a say in the point's verdict, and were not asked.
bool is_by_interval_alone(const JudgedPoint& point, const Criterion& criterion);

// 0.9 for a margin (two one-sided tests at 5 %), else 0.95.
double confidence_of(const Criterion& criterion);

// The reason where nothing else is in the way.
inline constexpr const char* both_answers = "the interval holds both answers";

// Of the rows of one experiment. A point's verdict is that of the interval, but inconclusive where sign flips have a
// say and do not exclude a bound on which it rests at 5 %: few seeds, one of which is on the other side, can have a
// narrow interval that goes by the normal law alone. Several points: reproduced where all are, not reproduced where one
// is not. A method, a point or a number that is not there makes the claim inconclusive, with the reason. Throws
// std::runtime_error where a run's evaluations cannot be read.
ClaimResult judge(const Claim& claim, std::span<const ResultRow> rows);

}  // namespace syncopate
