#include "workers/datasets/npy_finite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <string>

#include "workers/datasets/digest_cache.hpp"
#include "workers/files/data_fault.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

// A number times 0 is 0, or not finite.
bool are_finite(std::span<const float> values) {
  float sums[16] = {};
  std::size_t i = 0;
  for (; i + std::size(sums) <= values.size(); i += std::size(sums))
    for (std::size_t lane = 0; lane < std::size(sums); ++lane) sums[lane] += values[i + lane] * 0;
  for (; i < values.size(); ++i) sums[0] += values[i] * 0;
  return std::ranges::all_of(sums, [](float sum) { return sum == 0; });
}

}  // namespace

void check_finite(const std::filesystem::path& file, const NpyArray& array, std::int64_t per_sample,
                  std::string_view what) {
  static std::mutex mutex;
  static std::set<std::string> looked_at;  // digests of files in which all are
  const std::string digest = digest_cache().digest(file);
  const std::lock_guard lock(mutex);
  if (looked_at.contains(digest)) return;
  const auto& shape = array.shape();
  const auto count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const std::span<const float> values(array.data<float>(), static_cast<std::size_t>(count));
  constexpr std::size_t piece = 1 << 20;
  for (std::size_t begin = 0; begin < values.size(); begin += piece) {
    throw_if_interrupted();
    const auto part = values.subspan(begin, std::min(piece, values.size() - begin));
    if (are_finite(part)) continue;
    const auto wrong = std::ranges::find_if(part, [](float value) { return !std::isfinite(value); });
    const std::int64_t at = static_cast<std::int64_t>(begin) + (wrong - part.begin());
    throw DataFault(fmt::format("{}: {} {} of sample {} is {}; must be finite", file.string(), what, at % per_sample,
                                at / per_sample, *wrong));
  }
  looked_at.insert(digest);
}

}  // namespace syncopate
