#include "results/claims/equal_loss.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "results/claims/claim.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {
namespace {

struct Point {
  double step = 0, time_s = 0, loss = 0;
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

std::vector<Point> points_of(const std::filesystem::path& file) {
  const auto text = read_file(file, any_size);
  if (!text) throw std::runtime_error(file.string() + ": not there; expected the run's evaluations");
  std::istringstream lines(*text);
  std::vector<std::string> heading;
  std::vector<Point> points;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = fields_of(line);
    if (heading.empty()) {
      heading = fields;
      continue;
    }
    const auto number = [&](const char* column) {
      const auto found = std::ranges::find(heading, column);
      const auto index = static_cast<std::size_t>(found - heading.begin());
      if (found == heading.end() || index >= fields.size() || fields[index].empty())
        throw std::runtime_error(fmt::format("{}: a row has no {}", file.string(), column));
      return std::stod(fields[index]);
    };
    points.push_back({number("step"), number("time_s"), number("test_loss")});
  }
  return points;
}

}  // namespace

bool is_equal_loss(std::string_view measure) { return measure == time_to_equal_loss || measure == steps_to_equal_loss; }

std::optional<EqualLoss> to_equal_loss(std::string_view measure, const ResultRow& row, std::size_t run,
                                       const ResultRow& other, std::size_t other_run) {
  const std::vector<Point> own = points_of(row.directories.at(run) / "metrics.csv"),
                           others = points_of(other.directories.at(other_run) / "metrics.csv");
  if (others.empty()) return {};
  const Point& end = others.back();
  const auto reached = std::ranges::find_if(own, [&](const Point& point) { return point.loss <= end.loss; });
  if (reached == own.end()) return {};
  const auto of = [&](const Point& point) { return measure == time_to_equal_loss ? point.time_s : point.step; };
  return EqualLoss{of(*reached), of(end)};
}

}  // namespace syncopate
