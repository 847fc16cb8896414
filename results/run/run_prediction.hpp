// What formulas say of a run's time, without running anything.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algorithms/method/prediction.hpp"
#include "results/run/run.hpp"

namespace syncopate {

struct FormulaTime {
  Prediction prediction;
  std::optional<double> total_time_s;  // of the budget; none where bytes alone limit it
};

// A sample of the run's compute times; nothing where a micro-batch has no expected duration, or a
// trace has too few.
std::optional<SampledTimes> sample_times(const Run& run);

// What its compressed sums, or its averages, exchange, of those of slices one after the other; or what a worker's
// compressed message has, to each server. None: they are dense, or it is not known before the model is made.
struct KnownExchanges {
  std::vector<ExchangesFrom> all{};
  std::vector<Exchange> of_average{};
  std::optional<Bytes> packet{};
  std::string why_none{};
};
KnownExchanges known_exchanges(const Run& run);

// Steps after which its pace is that of the rest of the run.
Step settles_after(const Run& run);
// Whether nothing but a number of steps ends it.
bool ends_by_steps(const Budget& budget);

struct FormulaTimes {
  std::vector<FormulaTime> all;
  std::string why_none;  // where there are none
};

// As many as there are for the run's method; `times` is a sample of it, if there is one.
FormulaTimes predict_by_formula(const Run& run, const std::optional<SampledTimes>& times);

}  // namespace syncopate
