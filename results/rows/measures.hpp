// The numbers of a run by which methods are compared: in tables, claims and tuning, under these names.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "results/rows/summary.hpp"

namespace syncopate {

enum class Better { less, more, neither };

// How two methods' numbers are compared in tables: by their difference, by own / other, or by other / own.
enum class ComparedBy { difference, ratio, speed_up };

struct Measure {
  const char* name;         // final_test_accuracy
  const char* heading;      // "accuracy %", with the unit in which it is shown
  const char* unit;         // "%"; empty: it is a plain number
  const char* description;  // a sentence
  Better better = Better::neither;
  double shown_times = 1;                                         // 100: a share that is shown in percent
  std::function<std::optional<double>(const RunSummary&)> value;  // none: the run has no such number
  ComparedBy compared_by = ComparedBy::difference;
  const char* compared_heading = nullptr;  // of a ratio
};

// In the order in which they are listed. time_to_target_s is none also where the target was not reached: whoever means
// it over seeds takes restricted times.
std::span<const Measure> measures();

// Null if there is none of this name.
const Measure* measure_named(std::string_view name);

}  // namespace syncopate
