#include "results/rows/arrivals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "results/formats/exact_seconds.hpp"

namespace syncopate {
namespace {

// Calls visit(k, arrival), k from 1 in every round.
template <typename Visit>
void visit_rounds(std::span<const GradientArrival> arrivals, const Visit& visit) {
  std::size_t k = 0;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const bool begins =
        i == 0 || arrivals[i].round_begin != arrivals[i - 1].round_begin || arrivals[i].step != arrivals[i - 1].step;
    k = begins ? 1 : k + 1;
    visit(k, arrivals[i]);
  }
}

}  // namespace

std::vector<GradientArrival> in_order(std::vector<GradientArrival> arrivals) {
  std::ranges::stable_sort(arrivals, {}, [](const GradientArrival& arrival) {
    return std::tuple(arrival.round_begin, arrival.step, arrival.since, arrival.worker);
  });
  return arrivals;
}

std::vector<MeanArrival> mean_arrivals(std::span<const GradientArrival> arrivals) {
  std::vector<MeanArrival> means;
  visit_rounds(arrivals, [&](std::size_t k, const GradientArrival& arrival) {
    if (means.size() < k) means.resize(k);
    means[k - 1].mean_s += exact_seconds(arrival.since);
    ++means[k - 1].rounds;
  });
  for (MeanArrival& mean : means) mean.mean_s /= static_cast<double>(mean.rounds);
  return means;
}

std::string arrivals_csv(std::span<const GradientArrival> arrivals) {
  std::string text = "step,k,worker,arrival_s\n";
  visit_rounds(arrivals, [&](std::size_t k, const GradientArrival& arrival) {
    fmt::format_to(std::back_inserter(text), "{},{},{},{}\n", arrival.step.value(), k, arrival.worker.value,
                   exact_seconds(arrival.since));
  });
  return text;
}

}  // namespace syncopate
