#include "experiments/listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/sync_period.hpp"
#include "experiments/training_section.hpp"
#include "workers/delays/registry.hpp"
#include "workers/models/registry.hpp"

namespace syncopate {
namespace {

struct Row {
  std::string_view name;
  std::string sentence;
};

struct Group {
  std::string_view kind;   // as one asks for it
  std::string_view title;  // and where it is written in an experiment file
  std::vector<Row> rows;
};

template <typename Rows>
std::vector<Row> rows_of(const Rows& registry) {
  std::vector<Row> rows;
  for (const auto& row : registry) rows.push_back({row.name, std::string(row.sentence)});
  return rows;
}

std::vector<Row> algorithm_rows() {
  std::vector<Row> rows;
  for (const AlgorithmRow& row : algorithms()) {
    rows.push_back(
        {row.name, row.source.empty() ? std::string(row.sentence) : fmt::format("{} ({})", row.sentence, row.source)});
  }
  return rows;
}

std::vector<Group> groups() {
  return {
      {"algorithms", "algorithms: [[methods]] algorithm", algorithm_rows()},
      {"delays", "delays: [[delays]] kind", rows_of(delays())},
      {"delays", "network models: [network] kind", rows_of(networks())},
      {"models", "models: training.model", rows_of(models())},
      {"datasets", "data sets: training.dataset", rows_of(datasets())},
      {"schedules", "synchronisation periods: [[methods]] period.rule", rows_of(sync_periods())},
      {"schedules", "learning-rate schedules: training.learning_rate.schedule", rows_of(learning_rate_schedules())},
  };
}

}  // namespace

std::string listing(std::string_view kind) {
  std::string result;
  for (const Group& group : groups()) {
    if (!kind.empty() && group.kind != kind) continue;
    std::size_t width = 0;
    for (const Row& row : group.rows) width = std::max(width, row.name.size());
    result += fmt::format("{}{}\n", result.empty() ? "" : "\n", group.title);
    for (const Row& row : group.rows) result += fmt::format("  {:<{}}  {}\n", row.name, width, row.sentence);
  }
  return result;
}

}  // namespace syncopate
