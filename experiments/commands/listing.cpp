#include "experiments/commands/listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/delays/registry.hpp"
#include "workers/models/registry.hpp"
#include "workers/network/registry.hpp"

namespace syncopate {
namespace {

constexpr std::size_t line_width = 110;

struct Row {
  std::string_view name;
  std::string sentence;
  std::string_view family{};  // rows of one stand together below its name
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

// Family by family, each where its first row stands.
std::vector<Row> algorithm_rows() {
  std::vector<std::string_view> families;
  for (const AlgorithmRow& row : algorithms()) {
    if (std::ranges::find(families, row.family) == families.end()) families.push_back(row.family);
  }
  std::vector<Row> rows;
  for (const std::string_view family : families) {
    for (const AlgorithmRow& row : algorithms()) {
      if (row.family == family) rows.push_back({row.name, fmt::format("{} [{}]", row.sentence, row.source), family});
    }
  }
  return rows;
}

std::vector<Group> groups() {
  return {
      {"algorithms", "algorithms: [[methods]] algorithm", algorithm_rows()},
      {"delays", "delays: [[delays]] kind", rows_of(delays())},
      {"networks", "network models: [network] kind", rows_of(networks())},
      {"models", "models: training.model", rows_of(models())},
      {"datasets", "data sets: training.dataset", rows_of(datasets())},
      {"schedules", "synchronisation periods: [[methods]] period.rule", rows_of(sync_periods())},
      {"schedules", "outer optimizers of outer-local-sgd: [[methods]] outer.name", rows_of(outer_optimizers())},
      {"schedules", "thresholds of dropcompute: [[methods]] threshold.rule", rows_of(drop_thresholds())},
      {"schedules", "compensations of dropcompute: [[methods]] compensation", rows_of(drop_compensations())},
      {"schedules", "learning-rate schedules: training.learning_rate.schedule", rows_of(learning_rate_schedules())},
  };
}

// The words of `text` on lines that end before `line_width`; all but the first begin after `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool first = column == indent;
    if (!first && column + 1 + word.size() > line_width) {
      result += fmt::format("\n{:{}}{}", "", indent, word);
      column = indent + word.size();
    } else {
      result += fmt::format("{}{}", first ? "" : " ", word);
      column += word.size() + (first ? 0 : 1);
    }
  }
  return result;
}

std::string listing_of(const Group& group) {
  std::string result = fmt::format("{}\n", group.title);
  std::size_t width = 0;
  for (const Row& row : group.rows) width = std::max(width, row.name.size());
  std::string_view family;
  for (const Row& row : group.rows) {
    if (row.family != family) result += fmt::format("  {}:\n", row.family);
    family = row.family;
    const std::size_t indent = family.empty() ? 2 : 4;
    result += fmt::format("{:{}}{:<{}}  {}\n", "", indent, row.name, width, wrapped(row.sentence, indent + width + 2));
  }
  return result;
}

}  // namespace

std::string listing(std::string_view kind) {
  std::string result;
  for (const Group& group : groups()) {
    if (!kind.empty() && group.kind != kind) continue;
    result += fmt::format("{}{}", result.empty() ? "" : "\n", listing_of(group));
  }
  return result;
}

}  // namespace syncopate
