// A number of a rule that may be written as a table, { rounds = 470 } or { share = 0.2 }: it is then what makes so many
// rounds over the run's steps. A run's resolved settings have the number in the table's place, and beside it what it
// was solved for, `solved_for = { rounds = 470, found = 470 }`, which decides nothing: read again, the number stays.
#pragma once

#include <cstdint>
#include <optional>

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

class AskedRounds {
 public:
  // Reads the key where it is a table. Faults: both or neither of the two, a budget that does not count steps, rounds
  // that are more than its steps or none.
  AskedRounds(Settings& settings, const Key& key, const SyncPeriodContext& context);

  bool is_table() const { return is_table_; }
  // None: nothing is asked for, or nothing can be solved for faults.
  std::optional<std::int64_t> rounds() const { return rounds_; }

  // The rule as it is now: what it was solved for is told, or, where it was told in the settings, left out unless it
  // still makes the rounds that were found.
  void tell(const SyncPeriod& period);

 private:
  void read(Settings& table, std::string_view key);

  Settings settings_;
  const SyncPeriodContext& context_;
  bool is_table_;
  std::optional<double> share_{};
  std::optional<std::int64_t> rounds_{};
};

}  // namespace syncopate
