#include "workers/mpi/mpi_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "workers/mpi/value_layout.hpp"

namespace syncopate {
namespace {

void sum_in_place(MPI_Comm workers, std::span<float> values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(values.size()), MPI_FLOAT, MPI_SUM, workers);
}

Gradient wide_sum_over(MPI_Comm workers, Training& training, Gradient own, std::int64_t micro_batches) {
  own.widen();
  const std::size_t parameters = training.objective().parameters();
  FlatVector values(training.gradient_size(true));
  training.write_values(own, values.data());
  float* const high = values.data();
  float* const low = high + parameters;
  std::vector<double> exact(parameters);
  for (std::size_t i = 0; i < parameters; ++i) exact[i] = joined(high[i], low[i]);
  sum_over(workers, exact);
  for (std::size_t i = 0; i < parameters; ++i) split(exact[i], high[i], low[i]);
  sum_in_place(workers, values.span().subspan(2 * parameters));
  return training.gradient_from(std::move(values), micro_batches, {}, true);
}

}  // namespace

int mpi_count(std::size_t elements) {
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::length_error(fmt::format("{} values are more than one MPI call can move", elements));
  return static_cast<int>(elements);
}

FlatVector zeros_of(Bytes bytes) {
  FlatVector values(static_cast<std::size_t>(bytes.value()) / sizeof(float));
  std::fill_n(values.data(), values.size(), 0.0f);
  return values;
}

void sum_over(MPI_Comm workers, std::span<double> numbers) {
  MPI_Allreduce(MPI_IN_PLACE, numbers.data(), mpi_count(numbers.size()), MPI_DOUBLE, MPI_SUM, workers);
}

Gradient sum_over(MPI_Comm workers, Training& training, const Gradient& gradient, std::int64_t micro_batches,
                  bool wide) {
  if (training.time_only()) {
    FlatVector payload = zeros_of(training.parameter_bytes());
    sum_in_place(workers, payload.span());
    Gradient sum(nullptr, micro_batches);
    if (wide) sum.widen();
    return sum;
  }
  if (wide) return wide_sum_over(workers, training, gradient, micro_batches);
  FlatVector values(training.gradient_size());
  training.write_values(gradient, values.data());
  sum_in_place(workers, values.span());
  return training.gradient_from(std::move(values), micro_batches);
}

ModelStatePtr mean_over(MPI_Comm workers, Training& training, const ModelStatePtr& state, const AveragePolicy& policy,
                        std::optional<double> share) {
  if (training.time_only()) {
    FlatVector payload = zeros_of(Bytes{static_cast<Bytes::Rep>(sizeof(float) * training.averaged_size(policy))});
    sum_in_place(workers, payload.span());
    return nullptr;
  }
  FlatVector values(training.averaged_size(policy));
  training.write_averaged(state, policy, values.data());
  const auto scale = [&](float factor) {
    for (float& value : values.span()) value *= factor;
  };
  if (share) scale(static_cast<float>(*share));
  sum_in_place(workers, values.span());
  int size = 1;
  MPI_Comm_size(workers, &size);
  if (!share) scale(1.0f / static_cast<float>(size));
  return training.from_averaged(state, policy, values.data());
}

ModelStatePtr copy_from(MPI_Comm workers, Training& training, const ModelStatePtr& state, int root) {
  int rank = 0;
  MPI_Comm_rank(workers, &rank);
  constexpr AveragePolicy travels{.buffers = StatePolicy::average};
  FlatVector values =
      training.time_only() ? zeros_of(training.parameter_bytes()) : FlatVector(training.averaged_size(travels));
  if (!training.time_only() && rank == root) training.write_averaged(state, travels, values.data());
  MPI_Bcast(values.data(), mpi_count(values.size()), MPI_FLOAT, root, workers);
  if (rank == root || training.time_only()) return state;
  return training.from_averaged(state, travels, values.data());
}

}  // namespace syncopate
