#include "algorithms/local_sgd/asked_rounds.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "algorithms/local_sgd/rounds_of_rule.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t most_rounds = 1'000'000;  // that are searched for
constexpr std::int64_t most_steps = std::numeric_limits<std::int64_t>::max() - 1;

const Key solved_for{"solved_for", "Written by the program: what a number was solved for; it decides nothing."};

}  // namespace

AskedRounds::AskedRounds(Settings& settings, const Key& key, const SyncPeriodContext& context)
    : settings_(settings), context_(context), is_table_(settings.has_table(key)) {
  if (!is_table_) return;
  if (!context.counts_steps) {
    settings.fault(key.name,
                   "must be a number where the budget is not counted in steps or epochs: nothing says over how "
                   "many steps rounds are to be counted");
  }
  Settings table = settings.section(key.name);
  read(table, key.name);
  if (!context.total_steps || !context.learning_rate) rounds_.reset();
}

void AskedRounds::read(Settings& table, std::string_view key) {
  const std::size_t faults = table.faults_so_far();
  rounds_ = table.optional_integer(
      {"rounds", "How many averages over the run's steps it is to make.", "rounds", "share"}, 1, most_rounds);
  share_ = table.optional_number({"share", "The same as a share of the steps.", "", "rounds"},
                                 {.low = 0, .high = 1, .low_open = true});
  if (rounds_ && share_) table.fault("share", "must not be given together with rounds");
  if (table.keys().empty())
    settings_.fault(key, "must be a number, or have rounds or share: { rounds = 470 } or { share = 0.2 }");
  if (table.faults_so_far() > faults || !context_.total_steps) {
    rounds_.reset();
    return;
  }
  const Step::Rep steps = context_.total_steps->value();
  if (share_) rounds_ = std::llround(*share_ * static_cast<double>(steps));
  if (rounds_ && *rounds_ > steps) {
    table.fault("rounds", fmt::format("must be at most the run's {} steps", steps));
    rounds_.reset();
  } else if (rounds_ && (*rounds_ < 1 || *rounds_ > most_rounds)) {
    table.fault("share",
                fmt::format("must make from 1 to {} rounds: of {} steps these are {}", most_rounds, steps, *rounds_));
    rounds_.reset();
  }
}

void AskedRounds::tell(const SyncPeriod& period) {
  Settings told = settings_.section(solved_for);
  told.optional_number({"share", "Of the steps, where that was asked for."}, Range::any());
  told.optional_integer({"rounds", "How many were asked for.", "rounds"}, 1, most_rounds);
  const auto found =
      told.optional_integer({"found", "How many the number makes: the nearest there is.", "rounds"}, 1, most_steps);
  if (is_table_ && (found || told.has("rounds") || told.has("share")))
    settings_.fault(solved_for.name, "must be left out where it is yet to be solved");
  if (!context_.total_steps || !context_.learning_rate) return;
  const auto makes = [&](std::int64_t at_most) {
    return count_rounds(period, *context_.learning_rate, *context_.total_steps, at_most);
  };
  if (rounds_) {
    if (share_) told.number("share", Range::any(), *share_);
    told.integer("rounds", 1, most_rounds, *rounds_);
    told.integer("found", 1, most_steps, makes(most_steps));
  } else if (found && makes(*found + 1) != *found) {
    for (const char* key : {"share", "rounds", "found"}) told.leave_out(key);
  }
}

}  // namespace syncopate
