// What a method takes to the loss at which another one ends.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "results/tables/result_rows.hpp"

namespace syncopate {

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

}  // namespace syncopate
