#include "experiments/sections/expansion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "experiments/sections/reading.hpp"

namespace syncopate {
namespace {

std::string text_of(const std::vector<PointName>& sweep) {
  std::string text;
  for (const auto& [key, value] : sweep) text += fmt::format("{}\"{}\" = {}", text.empty() ? "" : ", ", key, value);
  return text;
}

// `places`: where the runs by their courses stand.
void add_runs(const Expansion& all, std::size_t point, const Tuned& tuned, std::map<std::string, std::size_t>& places,
              ExpandedRuns& made) {
  std::vector<Run>& runs = made.runs;
  for (std::size_t method = 0; method < all.methods; ++method) {
    const auto changes = tuned ? tuned(point, method) : std::vector<Change>();
    if (!changes) continue;
    TomlNode root = all.documents[point];
    for (const Change& change : *changes) apply(root, change);
    for (const std::uint64_t seed : all.seeds) {
      Run run = plan_run(document_of_run(root, method, seed), all.file, all.options);
      run.method_index = method;
      run.point_index = point;
      run.sweep = describe_point(all.axes, all.points[point], method);
      const auto [place, is_new] = places.emplace(fmt::format("{} {}", run.course, run.method), runs.size());
      if (!is_new && runs[place->second].hash != run.hash)
        keep_what_is_equal(runs[place->second].sweep, run.sweep);
      else if (!is_new && runs[place->second].sweep != run.sweep)
        throw ConfigurationFault(fmt::format(
            "{}: sweep; {} and {} make the same run of \"{}\"; must hold no value twice", all.axes.front().place.text(),
            text_of(runs[place->second].sweep), text_of(run.sweep), run.method));
      if (!is_new) continue;
      runs.push_back(std::move(run));
      made.points.push_back(point);
    }
  }
}

}  // namespace

void keep_what_is_equal(std::vector<PointName>& sweep, const std::vector<PointName>& other) {
  std::erase_if(sweep, [&other](const auto& swept) { return std::ranges::find(other, swept) == other.end(); });
}

ExpandedRuns runs_of(const Expansion& all, const Tuned& tuned) {
  ExpandedRuns made;
  std::map<std::string, std::size_t> places;
  for (std::size_t point = 0; point < all.points.size(); ++point) add_runs(all, point, tuned, places, made);
  return made;
}

}  // namespace syncopate
