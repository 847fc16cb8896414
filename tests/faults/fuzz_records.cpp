#include <optional>
#include <string>

#include "results/claims.hpp"
#include "results/found_runs.hpp"
#include "results/lease.hpp"
#include "results/result_table.hpp"
#include "results/summary.hpp"
#include "tests/faults/fuzzing.hpp"

namespace syncopate {
namespace {

template <typename Record, typename Read>
void check_read_back(const Record& record, const Read& read) {
  // The first reading drops values that no program writes, such as a claim of two kinds.
  const auto read_once = read(to_json(record));
  must(read_once.has_value(), "what is written can be read");
  const std::string text = to_json(*read_once);
  const auto again = read(text);
  must(again && to_json(*again) == text, "what is written reads back to itself");
}

}  // namespace

// The input is one text, which each kind of record must read or refuse.
void fuzz_records(std::string_view input) {
  const std::string text(input);
  if (const auto summary = summary_from_json(text)) check_read_back(*summary, summary_from_json);
  if (const auto claims = claims_from_json(text)) {
    check_read_back(*claims, [](const std::string& written) { return claims_from_json(written); });
    must(!scoreboard_text(std::span(&*claims, 1)).empty(), "claims have a scoreboard");
    scoreboard_table(std::span(&*claims, 1)).markdown();
  }
  if (const auto tuning = tuning_from_json(text)) {
    check_read_back(*tuning, tuning_from_json);
    tuning_lines(*tuning);
  }
  if (const auto note = lease_note_from_text(text)) {
    const auto again = lease_note_from_text(to_text(*note));
    must(again && to_text(*again) == to_text(*note), "a lease reads back to itself");
  }
}

}  // namespace syncopate
