#include "results/directory/durations_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

namespace syncopate {
namespace {

constexpr std::int64_t ns_per_s = 1'000'000'000;

}  // namespace

std::string durations_csv(std::vector<MicroBatchTime> durations) {
  std::ranges::stable_sort(durations, {},
                           [](const MicroBatchTime& time) { return std::tuple(time.worker, time.step, time.index); });
  std::string text = "worker,step,micro_batch,duration_s,added_s\n";
  for (const MicroBatchTime& time : durations) {
    const std::int64_t duration_ns = time.duration.count(), added_ns = time.added.count();
    fmt::format_to(std::back_inserter(text), "{},{},{},{}.{:09},{}.{:09}\n", time.worker.value, time.step.value(),
                   time.index, duration_ns / ns_per_s, duration_ns % ns_per_s, added_ns / ns_per_s,
                   added_ns % ns_per_s);
  }
  return text;
}

}  // namespace syncopate
