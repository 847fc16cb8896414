#include "workers/training/norm_preserving_mean.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/training/course_log.hpp"

namespace syncopate {
namespace {

// With weights that sum to 1.
template <typename Term>
std::vector<Term> normalised(std::vector<Term> terms) {
  double total = 0;
  for (const Term& term : terms) total += term.weight;
  for (Term& term : terms) term.weight /= total;
  return terms;
}

bool is_embedding(const std::string& tensor) {
  const auto has = [&](std::string_view part) { return tensor.find(part) != std::string::npos; };
  return has("embedding") || has("words") || has("places");
}

}  // namespace

void write_norm_preserving_mean(float* out, std::span<const WeightedVector> terms, std::size_t size) {
  const std::vector<WeightedVector> shares = normalised(std::vector(terms.begin(), terms.end()));
  std::vector<WeightedVector> directions;
  double length = 0;
  for (const auto& [share, in] : shares) {
    const double norm = std::sqrt(sum_of_squares(in, size));
    length += share * norm;
    if (norm > 0) directions.push_back({share / norm, in});
  }
  std::vector<double> sum(size);
  for (const auto& [weight, in] : directions) add_scaled(sum.data(), weight, in, size);
  double squares = 0;
  for (const double value : sum) squares += value * value;
  const double norm = std::sqrt(squares);
  if (norm <= shortest_mean_direction) return write_weighted_sum(out, shares, size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(length / norm * sum[i]);
}

ModelStatePtr norm_preserving_mean(Training& training, std::span<const WeightedState> differences, Slice slice,
                                   OfEmbeddings embeddings) {
  if (training.time_only()) return nullptr;
  std::vector<CellPtr> read;
  std::vector<WeightedState> held(differences.begin(), differences.end());
  for (const WeightedState& difference : held) read.push_back(difference.state->parameters);
  auto result = std::make_shared<ModelState>(*held.front().state);
  result->id = new_state_id();
  result->parameters = new_cell();
  if (result->buffers) result->buffers = training.combine(normalised(held))->buffers;
  const Objective& objective = training.objective();
  const std::size_t size = objective.parameters();
  const auto begin = static_cast<std::size_t>(slice.begin(static_cast<std::int64_t>(size)));
  const auto end = static_cast<std::size_t>(slice.end(static_cast<std::int64_t>(size)));
  for (WeightedState& difference : held) difference.state = held_by_task(difference.state);
  const auto fill = [cell = result->parameters, held = std::move(held), tensors = objective.tensors(), size, begin, end,
                     embeddings] {
    cell->value = FlatVector(size);
    float* const out = cell->value.data();
    std::fill(out, out + begin, 0.0f);
    std::fill(out + end, out + size, 0.0f);
    for (const ParameterTensor& tensor : tensors) {
      const std::size_t from = std::max(begin, tensor.offset), to = std::min(end, tensor.offset + tensor.size);
      if (from >= to) continue;
      std::vector<WeightedVector> terms;
      for (const auto& [weight, state] : held)
        terms.push_back({weight, std::as_const(state->parameters->value).data() + from});
      if (embeddings == OfEmbeddings::mean && is_embedding(tensor.name))
        write_weighted_sum(out + from, normalised(terms), to - from);
      else
        write_norm_preserving_mean(out + from, terms, to - from);
    }
  };
  training.compute({.reads = std::move(read), .writes = {result->parameters}, .work = fill});
  return result;
}

}  // namespace syncopate
