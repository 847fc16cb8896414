#include "workers/models/unasked_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <span>

namespace syncopate {
namespace {

using Kind = TextTask::Kind;

// How many tokens of a row must be shown so that something is asked for; nothing: no number suffices.
std::optional<std::int64_t> tokens_needed(const Dataset& dataset, Split split, std::uint32_t row,
                                          const TextTask& task) {
  const auto first_where = [](const auto& of, const auto& asks) -> std::optional<std::int64_t> {
    const auto found = std::ranges::find_if(of, asks);
    return found == of.end() ? std::nullopt : std::optional(found - of.begin() + 1);
  };
  const std::span<const std::int32_t> tokens = dataset.tokens(split, row);
  if (task.kind == Kind::causal_lm) return tokens.size() > 1 ? std::optional<std::int64_t>(2) : std::nullopt;
  if (task.own_labels)
    return first_where(dataset.token_labels(split, row), [](std::int32_t label) { return label != ignored_label; });
  const auto& never = dataset.size().marks.never_masked;
  return first_where(tokens, [&](std::int32_t token) { return std::ranges::find(never, token) == never.end(); });
}

void count(std::optional<UnaskedRows>& rows, Split split, std::uint32_t row) {
  if (rows)
    ++rows->others;
  else
    rows = UnaskedRows{.split = split, .first = row};
}

}  // namespace

std::string UnaskedRows::text() const {
  const std::string named = fmt::format("row {} of the {} set", first, split == Split::train ? "training" : "test");
  return others == 0 ? named : fmt::format("{} and {} other{}", named, others, others == 1 ? "" : "s");
}

bool may_leave_unasked(const DatasetSize& data, const TextTask& task) {
  const std::int64_t shortest = data.shortest > 0 ? data.shortest : data.shape.width;
  const bool is_cut = task.longest > 0 && task.longest < data.shape.width;
  switch (task.kind) {
    case Kind::classification:
      return false;
    case Kind::causal_lm:
      return shortest < 2 || (is_cut && task.longest < 2);
    case Kind::masked_lm:
      if (task.own_labels) return is_cut;  // whole rows have been checked when they were read
      if (data.marks.never_masked.empty()) return false;
      // A first token, words, a last one: two tokens are enough where there are words.
      if (data.marks.never_masked_stand_at_ends) return shortest < 3 || (is_cut && task.longest < 2);
      return true;
  }
  return true;
}

UnaskedByTask unasked_rows(const Dataset& dataset, const TextTask& task) {
  assert(task.kind != Kind::classification);
  UnaskedByTask found;
  for (const Split split : {Split::train, Split::test})
    for (std::int64_t row = 0; row < dataset.size().samples(split); ++row) {
      const auto number = static_cast<std::uint32_t>(row);
      const auto needed = tokens_needed(dataset, split, number, task);
      if (!needed)
        count(found.whole, split, number);
      else if (task.longest > 0 && *needed > task.longest)
        count(found.cut, split, number);
      found.longest = std::max(found.longest, needed.value_or(0));
    }
  return found;
}

}  // namespace syncopate
