// Which method is best at each point of what varies, by one measure, and which cannot be told apart from it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/rows/measures.hpp"
#include "results/tables/paired_table.hpp"
#include "results/tables/result_rows.hpp"
#include "results/tables/text_table.hpp"

namespace syncopate {

struct RankedRow {
  const ResultRow* row = nullptr;
  double mean = 0;                         // of times to the target: restricted to target_horizon_s of the rows here
  std::optional<std::size_t> reached{};    // of times to the target: how many runs reached it by then
  std::optional<PairedMeasure> to_best{};  // none of the best itself, and without common seeds
  bool is_missed = false;                  // no run reached the target; mean is when the first of them ended
  bool outlasts_best = false;              // then: each run went on for longer than the best's of its seed took

  // Whether the best is significantly better (PairedDifference); without common seeds nobody knows. Where no run
  // reached the target: whether each went on for longer than the best's of its seed took.
  bool is_behind() const;
};

struct Ranking {
  // Values of what is swept for all, "heavy tail, 10 Gbit/s"; empty where nothing is. Of runs that were made beside the
  // sweep in what they differ from the others.
  std::string point;
  std::vector<RankedRow> rows;  // the best first; none where nobody reached the target
};

// Of rows that have the measure, in the order in which points are first met. What is swept for a method alone makes
// further rows at the same point, and a method that something swept does not concern is at all of its values. What was
// made beside the sweep has points of its own (is_at_point_of). Throws
// std::invalid_argument: of the measure neither more nor less is better, or no row has it,
// or no run reached the target.
std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure);

TextTable ranking_table(std::span<const Ranking> rankings, const Measure& measure);

// A row for each point: the best, those that are not told apart from it, and those that are behind.
TextTable which_when_table(std::span<const Ranking> rankings);

std::string ranking_notes(const Measure& measure);

}  // namespace syncopate
