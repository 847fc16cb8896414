#include "workers/training/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace syncopate {
namespace {

void require(bool holds, double value, const char* name, const char* must) {
  if (!holds) throw std::invalid_argument(std::string(name) + " must be " + must + ", found " + std::to_string(value));
}

}  // namespace

TensorSums Optimizer::measure(int, const OptimizerBlock&, const StepContext&) const { return {}; }

const float* read_moment(const OptimizerBlock& block, std::size_t moment) {
  if (block.moments_before[moment] != nullptr) return block.moments_before[moment];
  std::fill_n(block.moments_after[moment], block.size, 0.0f);
  return block.moments_after[moment];
}

double left_of_start(double beta, const MomentAge& age) {
  return age.left * std::pow(beta, static_cast<double>(age.steps.value()));
}

void require_share(double value, const char* name) { require(value >= 0 && value < 1, value, name, "in [0, 1)"); }

void require_positive(double value, const char* name) {
  require(value > 0 && std::isfinite(value), value, name, "above 0 and finite");
}

void require_at_least_zero(double value, const char* name) {
  require(value >= 0 && std::isfinite(value), value, name, "at least 0 and finite");
}

}  // namespace syncopate
