#include "workers/training/model_state.hpp"

#include <algorithm>
#include <atomic>

#include "workers/training/course_log.hpp"

namespace syncopate {

CellPtr filled_cell(std::span<const float> values) {
  auto cell = new_cell();
  cell->value = FlatVector(values.size());
  std::copy(values.begin(), values.end(), cell->value.data());
  return cell;
}

std::uint64_t new_state_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace syncopate
