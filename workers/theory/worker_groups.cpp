#include "workers/theory/worker_groups.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace syncopate {
namespace {

struct Kind {
  StepLaw law{};
  std::vector<int> ranks{};
};

// By mean, then by variance.
std::vector<Kind> kinds_of(const ComputeTime& compute_time, int workers, int micro_batches) {
  std::map<std::pair<double, double>, Kind> kinds;
  for (int n = 0; n < workers; ++n) {
    const StepLaw law = compute_time.step_law(Rank{n}, micro_batches);
    // What a process does not say has no place in an order.
    const double variance_s2 = std::isnan(law.variance_s2) ? std::numeric_limits<double>::infinity() : law.variance_s2;
    Kind& kind = kinds[{law.mean_s, variance_s2}];
    kind.law = law;
    kind.ranks.push_back(n);
  }
  std::vector<Kind> ascending;
  for (auto& [key, kind] : kinds) ascending.push_back(std::move(kind));
  return ascending;
}

Kind merged(std::vector<Kind>::iterator begin, std::vector<Kind>::iterator end) {
  Kind all;
  std::vector<LawOfPart> parts;
  for (; begin != end; ++begin) {
    parts.push_back({begin->law, static_cast<int>(begin->ranks.size())});
    all.ranks.insert(all.ranks.end(), begin->ranks.begin(), begin->ranks.end());
  }
  all.law = together(parts);
  return all;
}

// Who is waited for is among the slowest: half of the groups are theirs alone.
std::vector<Kind> merge_faster_ones(std::vector<Kind> ascending, std::size_t most) {
  const std::size_t apart = most / 2, groups = most - apart, faster = ascending.size() - apart;
  std::vector<Kind> result;
  const auto at = [&](std::size_t group) {
    return ascending.begin() + static_cast<std::ptrdiff_t>(group * faster / groups);
  };
  for (std::size_t group = 0; group < groups; ++group) result.push_back(merged(at(group), at(group + 1)));
  std::move(at(groups), ascending.end(), std::back_inserter(result));
  return result;
}

}  // namespace

std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most) {
  std::vector<WorkerGroup> groups;
  if (workers <= most) {
    for (int n = 0; n < workers; ++n)
      groups.push_back({.declared = compute_time.step_law(Rank{n}, micro_batches), .drawn = {Rank{n}}});
    return groups;
  }
  std::vector<Kind> kinds = kinds_of(compute_time, workers, micro_batches);
  if (kinds.size() > static_cast<std::size_t>(most))
    kinds = merge_faster_ones(std::move(kinds), static_cast<std::size_t>(most));
  for (const Kind& kind : kinds) {
    WorkerGroup group{.workers = static_cast<int>(kind.ranks.size()), .declared = kind.law};
    const std::int64_t size = group.workers, drawn = std::max<std::int64_t>(1, most * size / workers);
    for (std::int64_t i = 0; i < drawn; ++i)
      group.drawn.emplace_back(kind.ranks[static_cast<std::size_t>(i * size / drawn)]);
    groups.push_back(std::move(group));
  }
  return groups;
}

StepLaw together(const std::vector<LawOfPart>& parts) {
  double workers = 0;
  for (const LawOfPart& part : parts) workers += part.workers;
  StepLaw all;
  for (const auto& [law, count] : parts) all.mean_s += count / workers * law.mean_s;
  for (const auto& [law, count] : parts) {
    const double off_s = law.mean_s - all.mean_s;
    all.variance_s2 += count / workers * (law.variance_s2 + off_s * off_s);
  }
  return all;
}

}  // namespace syncopate
