#include "workers/datasets/npy_targets.hpp"

#include <fmt/format.h>

#include <string>

#include "workers/datasets/npy_finite.hpp"
#include "workers/files/data_fault.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most_targets = 1 << 16;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw DataFault(fmt::format("{}: {}", file.string(), what));
}

}  // namespace

bool holds_targets(const NpyArray& y) { return y.type() == "<f4"; }

std::int64_t targets_of(const std::filesystem::path& file, const NpyArray& y) {
  const auto dimensions = y.shape().size();
  const std::int64_t targets = dimensions == 2 ? y.shape()[1] : 1;
  if (dimensions < 1 || dimensions > 2 || targets < 1 || targets > most_targets)
    fail(file, fmt::format("has {} dimensions{}; float32 must be (n,), or (n, targets) with 1 to {} of them",
                           dimensions, dimensions == 2 ? fmt::format(", {} targets", targets) : "", most_targets));
  check_finite(file, y, targets, "target");
  return targets;
}

}  // namespace syncopate
