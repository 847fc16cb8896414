#include "workers/network/listed_links.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <utility>

#include "workers/delays/csv_rows.hpp"
#include "workers/delays/data_file.hpp"

namespace syncopate {
namespace {

std::vector<WeightedLink> links_in(const DataFile& file, int workers, const ListedLinks& what) {
  const bool have_weights = what.weights == ListedWeights::read;
  CsvRows rows = have_weights ? CsvRows(file.name, file.content, {"from", "to", "weight"})
                              : CsvRows(file.name, file.content, {"from", "to"});
  if (what.weights == ListedWeights::refused && rows.has_column("weight"))
    rows.fault("there is a column weight; set weights = \"given\" to read it, or another word to pass it over");
  std::vector<WeightedLink> links;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  while (rows.next()) {
    const auto from = rows.integer(0, workers - 1), to = rows.integer(1, workers - 1);
    if (!from || !to) continue;
    if (*from == *to) {
      rows.fault(fmt::format("links worker {} with itself; must link two workers", *from));
      continue;
    }
    const double weight = have_weights ? rows.number(2) : 0;
    if (have_weights && !(weight > 0 && weight < 1))
      rows.fault(fmt::format("weight = {}; must be above 0 and below 1", weight));
    const bool is_new = seen.emplace(*from, *to).second;
    const bool is_new_back = what.go_one_way || seen.emplace(*to, *from).second;
    if (!is_new || !is_new_back) rows.fault(fmt::format("the link of {} and {} stands twice", *from, *to));
    const int a = static_cast<int>(*from), b = static_cast<int>(*to);
    links.push_back({a, b, weight});
    if (!what.go_one_way) links.push_back({b, a, weight});
  }
  rows.check();
  return links;
}

}  // namespace

std::optional<std::vector<WeightedLink>> read_listed_links(Settings& table, int workers, const ListedLinks& what) {
  const std::size_t faults = table.faults_so_far();
  const auto file = find_data_file(table);
  if (!file || table.faults_so_far() > faults) return std::nullopt;
  try {
    return links_in(*file, workers, what);
  } catch (const FileFault& problem) {
    report(problem, table);
    return std::nullopt;
  }
}

}  // namespace syncopate
