#include "workers/mpi/mpi_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace syncopate {
namespace {

void sum_in_place(MPI_Comm workers, FlatVector& values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(values.size()), MPI_FLOAT, MPI_SUM, workers);
}

}  // namespace

int mpi_count(std::size_t elements) {
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::length_error(fmt::format("{} values are more than one MPI call can move", elements));
  return static_cast<int>(elements);
}

FlatVector time_only_payload(const Training& training) {
  FlatVector values(static_cast<std::size_t>(training.parameter_bytes().value()) / sizeof(float));
  std::fill_n(values.data(), values.size(), 0.0f);
  return values;
}

Gradient sum_over(MPI_Comm workers, Training& training, const Gradient& gradient, std::int64_t micro_batches) {
  if (training.time_only()) {
    FlatVector payload = time_only_payload(training);
    sum_in_place(workers, payload);
    return Gradient(nullptr, micro_batches);
  }
  FlatVector values(training.gradient_size());
  training.write_values(gradient, values.data());
  sum_in_place(workers, values);
  return training.gradient_from(std::move(values), micro_batches);
}

ModelStatePtr mean_over(MPI_Comm workers, Training& training, const ModelStatePtr& state, const AveragePolicy& policy) {
  if (training.time_only()) {
    FlatVector payload = time_only_payload(training);
    sum_in_place(workers, payload);
    return nullptr;
  }
  FlatVector values(training.averaged_size(policy));
  training.write_averaged(state, policy, values.data());
  sum_in_place(workers, values);
  int size = 1;
  MPI_Comm_size(workers, &size);
  const float factor = 1.0f / static_cast<float>(size);
  for (float& value : values.span()) value *= factor;
  return training.from_averaged(state, policy, values.data());
}

ModelStatePtr copy_from(MPI_Comm workers, Training& training, const ModelStatePtr& state, int root) {
  int rank = 0;
  MPI_Comm_rank(workers, &rank);
  constexpr AveragePolicy travels{.moments = StatePolicy::keep, .buffers = StatePolicy::average};
  FlatVector values = training.time_only() ? time_only_payload(training) : FlatVector(training.averaged_size(travels));
  if (!training.time_only() && rank == root) training.write_averaged(state, travels, values.data());
  MPI_Bcast(values.data(), mpi_count(values.size()), MPI_FLOAT, root, workers);
  if (rank == root || training.time_only()) return state;
  return training.from_averaged(state, travels, values.data());
}

}  // namespace syncopate
