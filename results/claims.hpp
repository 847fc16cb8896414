// Whether a claim is reproduced by the runs that are there.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/result_rows.hpp"
#include "results/statistics.hpp"

namespace syncopate {

// A claim: what somebody says that an experiment shows, and what counts as having shown it. It stands in the experiment
// file, so that it is fixed before anything is run.
enum class Effect {
  value,       // the measure of one method
  difference,  // its own less the other method's
  ratio,       // its own divided by the other method's
  best,        // the value of the key `over` at which the measure is best
};

// One of these.
struct Criterion {
  std::optional<double> above{};     // the 95 % interval lies above this number
  std::optional<double> below{};     // it lies below
  std::optional<Interval> within{};  // it lies within
  std::optional<double> margin{};  // equivalence: the 90 % interval lies within so much of no effect (0; 1 of a ratio)

  bool operator==(const Criterion&) const = default;
};

// What the claim is checked against.
struct PublishedFigure {
  std::string figure;             // "18 %"
  std::string source;             // "Giladi et al. 2023, abstract"
  std::string certainty;          // how well that is established
  std::optional<double> value{};  // the same as a number of what is claimed, to be drawn beside ours

  bool operator==(const PublishedFigure&) const = default;
};

struct Claim {
  std::string sentence;
  std::string measure;  // of measures(), or one of time_to_equal_loss_s, steps_to_equal_loss
  std::string method;   // whose; empty where there is an order
  std::string against;  // the other method; empty: none
  Effect effect = Effect::value;
  std::vector<std::string> order{};            // methods by ascending measure: each next one is above the one before
  std::map<std::string, std::string> where{};  // values of what is swept, which choose points
  bool everywhere = false;                     // at every point that `where` leaves; else there must be one
  std::string over{};                          // a swept key: the slope of the effect over it, or its best value
  bool per_doubling = false;                   // per doubling of the key, not per 1
  Criterion criterion{};
  std::optional<PublishedFigure> published{};

  bool operator==(const Claim&) const = default;
};

// Besides measures: until the first evaluation at which a method's test loss is at most the other's at its end, against
// the other's end.
inline constexpr const char* time_to_equal_loss = "time_to_equal_loss_s";
inline constexpr const char* steps_to_equal_loss = "steps_to_equal_loss";

// What a method takes to the loss at which another one ends.
bool is_equal_loss(std::string_view measure);

// Until the run's first evaluation whose test loss is at most that of the other run's last one, and until the end of
// the other: seconds of the cluster's clock, or steps. Nothing where the run does not come to that loss. Throws
// std::runtime_error where evaluations cannot be read.
struct EqualLoss {
  double own = 0;
  double other = 0;
};
std::optional<EqualLoss> to_equal_loss(std::string_view measure, const ResultRow& row, std::size_t run,
                                       const ResultRow& other, std::size_t other_run);

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

// How a claim's numbers are shown, and in which words what it asks for.
struct ShownEffect {
  double times = 1;  // 100: a share that is shown in percent
  std::string unit;  // "s", "points"; empty: a plain number, such as a ratio
};

// In the measure's unit, as claims.json has it.
ShownEffect shown_effect(const Claim& claim);

// For readers: in hours where what is wanted or found goes to two hours or more.
ShownEffect readable_effect(const Claim& claim, std::span<const JudgedPoint> points);

// "step_time_s, DropCompute divided by synchronous SGD".
std::string subject_of(const Claim& claim);

// What counts as reproduced: "a difference above 0 points", "a ratio from 0.8 to 0.9"; in the unit of what was found.
std::string wanted_by(const Claim& claim, std::span<const JudgedPoint> points = {});

}  // namespace syncopate
