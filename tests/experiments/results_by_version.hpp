// Compares results of runs with a table of results by results_version.
//
// The comparison does not check whether results are right, but whether they are unchanged. The program reuses finished
// runs while results_version is unchanged, so their results must not change meanwhile.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "results/run.hpp"

namespace syncopate {

class ResultsByVersion {
 public:
  using Json = nlohmann::ordered_json;  // keeps the order of the file's entries

  // `table`: path in the checkout. The table is {run: {version: result}}, where a result is a string, a number or an
  // array.
  ResultsByVersion(std::string checkout, std::string table) : checkout_(std::move(checkout)), table_(std::move(table)) {
    entries_ = Json::parse(std::ifstream(checkout_ + "/" + table_), nullptr, false);
    if (!entries_.is_object()) entries_ = Json::object();
  }

  // Fails if a run's result differs from that of the newest version with an entry, if no version has an entry, or if
  // the table contains a run that no longer exists. The failure explains what to do. An updated table is written.
  void expect(const Json& results) const {
    std::vector<std::string> faults;
    Json right = Json::object();
    int version = results_version;
    for (const auto& [run, found] : results.items()) {
      const Newest newest = newest_of(run);
      right[run] = entries_.value(run, Json::object());
      if (is_same(found, newest.result)) continue;
      const bool is_known = newest.version > 0;
      const int next = is_known && newest.version >= results_version ? results_version + 1 : results_version;
      version = std::max(version, next);
      right[run][std::to_string(next)] = found;
      faults.push_back(fmt::format("{}: {}{}", run, found.dump(),
                                   is_known
                                       ? fmt::format(", and since version {} {}", newest.version, newest.result.dump())
                                       : ", of which it says nothing"));
    }
    for (const auto& [run, versions] : entries_.items()) {
      EXPECT_LE(newest_of(run).version, results_version)
          << run << ": of a version that is to come; raise results_version";
      if (!results.contains(run)) faults.push_back(run + ": is no run any more");
    }
    EXPECT_TRUE(faults.empty()) << what_to_do(faults, right, version);
  }

 private:
  struct Newest {
    int version = 0;
    Json result;
  };

  Newest newest_of(const std::string& run) const {
    Newest newest;
    if (!entries_.contains(run)) return newest;
    for (const auto& [version, result] : entries_.at(run).items())
      if (std::stoi(version) > newest.version) newest = {std::stoi(version), result};
    return newest;
  }

  // Compares numbers that BLAS has computed. Kernels and library versions differ in the seventh digit. Compression to a
  // few bits sometimes turns this into a whole quantisation step. A diverging run amplifies such differences, so no run
  // here may diverge.
  static bool is_same(const Json& found, const Json& before) {
    constexpr double tolerance = 3e-4;
    if (found.is_array() && before.is_array())
      return std::equal(found.begin(), found.end(), before.begin(), before.end(), is_same);
    if (!found.is_number() || !before.is_number()) return found == before;
    const double is = found.get<double>(), was = before.get<double>();
    return std::abs(is - was) <= tolerance * std::abs(was);
  }

  std::string what_to_do(const std::vector<std::string>& faults, const Json& right, int version) const {
    constexpr std::size_t shown = 20;
    std::string text = fmt::format("{} of {} runs are others than {} says:\n", faults.size(), right.size(), table_);
    for (std::size_t i = 0; i < std::min(faults.size(), shown); ++i) text += "  " + faults[i] + "\n";
    if (faults.size() > shown) text += "  ...\n";
    text += "What a run computes otherwise and was not meant to is a fault of the change. Where it is meant:\n";
    if (version > results_version)
      text += fmt::format(
          "- set results_version = {} in results/run.hpp, once for the whole change, so that nobody's "
          "finished runs are taken for what this program computes;\n",
          version);
    return text + fmt::format("- take the table as it would be right, and read what it changes: cp '{}' {}",
                              written(right), table_);
  }

  // Writes a file with these entries, one per line, and returns its path.
  std::string written(const Json& entries) const {
    const auto path =
        std::filesystem::temp_directory_path() /
        fmt::format("syncopate-results-{}-{}", getpid(), std::filesystem::path(table_).filename().string());
    std::ofstream file(path);
    std::string_view before = "{";
    for (const auto& [run, versions] : entries.items()) {
      file << before << "\n  " << Json(run).dump() << ": {";
      std::string_view between;
      for (const auto& [version, result] : versions.items()) {
        file << between << '"' << version << "\": " << result.dump();
        between = ", ";
      }
      file << "}";
      before = ",";
    }
    file << "\n}\n";
    return path.string();
  }

  std::string checkout_;
  std::string table_;
  Json entries_;
};

}  // namespace syncopate
