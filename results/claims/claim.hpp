// A claim: what somebody says that an experiment shows, and what counts as having shown it. It stands in the experiment
// file, so that it is fixed before anything is run.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/statistics/paired_difference.hpp"

namespace syncopate {

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

}  // namespace syncopate
