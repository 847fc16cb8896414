#include "workers/training/wide_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

// A sum of weights below this part of their magnitudes is what rounding has left of zero.
constexpr double rounding = 0x1p-44;
// Weights that differ by less than this part of them are one.
constexpr double agreement = 0x1p-30;

double sum_of(std::vector<double>& weights) {
  std::sort(weights.begin(), weights.end());  // the same sum in any order of addition
  double sum = 0;
  double magnitude = 0;
  for (const double weight : weights) {
    sum += weight;
    magnitude += std::abs(weight);
  }
  return std::abs(sum) <= rounding * magnitude ? 0 : sum;
}

// Cuts the weights in ascending order into runs that agree; each gets the middle of its run.
void unite_weights(std::span<Gradient::Term> terms) {
  std::vector<Gradient::Term*> order;
  for (Gradient::Term& term : terms) order.push_back(&term);
  std::sort(order.begin(), order.end(),
            [](const Gradient::Term* a, const Gradient::Term* b) { return a->scale < b->scale; });
  for (auto begin = order.begin(); begin != order.end();) {
    const double lowest = (*begin)->scale;
    const auto end = std::find_if(begin, order.end(), [&](const Gradient::Term* term) {
      return term->scale - lowest > agreement * std::abs(lowest);
    });
    const double middle = std::midpoint(lowest, (*(end - 1))->scale);
    for (; begin != end; ++begin) (*begin)->scale = middle;
  }
}

}  // namespace

std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms) {
  std::vector<Gradient::Term> merged;
  std::vector<std::vector<double>> weights;
  // As in a narrow sum: models with the same parameters and buffers are one.
  std::map<std::tuple<const Cell*, const Cell*, LastLayers, MicroBatch>, std::size_t> place;
  for (const Gradient::Term& term : terms) {
    if (!term.at) continue;
    for (const MicroBatch& micro_batch : term.micro_batches) {
      const auto [found, is_new] = place.try_emplace(
          {term.at->parameters.get(), term.at->buffers.get(), term.layers, micro_batch}, merged.size());
      if (is_new) {
        merged.push_back(
            {.at = term.at, .micro_batches = {micro_batch}, .sum = nullptr, .scale = 0, .layers = term.layers});
        weights.emplace_back();
      }
      weights[found->second].push_back(term.scale);
    }
  }
  for (std::size_t i = 0; i < merged.size(); ++i) merged[i].scale = sum_of(weights[i]);
  std::erase_if(merged, [](const Gradient::Term& term) { return term.scale == 0; });
  unite_weights(merged);
  return merged;
}

std::int64_t count_buffers(std::span<const Gradient::Term> terms, std::span<const Gradient::Term> merged) {
  auto count = std::ranges::count_if(merged, [](const Gradient::Term& term) { return term.layers.are_all(); });
  for (const Gradient::Term& term : terms)
    if (term.sum) count += term.sum->micro_batches;
  return count;
}

}  // namespace syncopate
