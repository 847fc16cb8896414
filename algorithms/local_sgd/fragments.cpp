#include "algorithms/local_sgd/fragments.hpp"

#include <fmt/format.h>

#include "workers/process/run_failure.hpp"

namespace syncopate {

// A round may be as long as whatever is left of a run without an end in steps.
Step Fragments::offset(int fragment, Step round) const {
  const Step::Rep turn = fragment + 1, whole = round.value() / count_, rest = round.value() % count_;
  return Step{turn * whole + (turn * rest + count_ - 1) / count_};
}

// The card.
// A run without a model need not say how large one would be.
void Fragments::check(const Participant& participant) const {
  const std::int64_t parameters = participant.parameters();
  if (count_ == 1 || parameters == 0 || count_ <= parameters) return;
  throw RunFailure(fmt::format("{}{}the model has {} parameters, and a fragment needs one at least", written_,
                               written_.empty() ? "" : "; ", parameters));
}

Fragments read_fragments(Settings& settings, std::optional<int> usual, std::optional<std::int64_t> parameters) {
  constexpr std::int64_t most = 1'000'000;
  const Key key{"fragments", "Into how many equal parts the model is divided (P)."};
  const std::int64_t count =
      usual ? settings.integer(key, 1, most, std::int64_t{*usual}) : settings.integer(key, 1, most);
  if (parameters && count > 1 && count > *parameters)
    settings.fault("fragments", fmt::format("must be at most {}: the model has as many parameters", *parameters));
  return Fragments(static_cast<int>(count), settings.written("fragments"));
}

}  // namespace syncopate
