// What a run can record beside its rounds and models. Off where nobody asks for it.
#pragma once

#include <optional>
#include <vector>

#include "workers/cluster/gradient_arrival.hpp"
#include "workers/cluster/span_recorder.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// A micro-batch that has come to its end.
struct MicroBatchTime {
  Rank worker{};
  Step step{};  // and index: of the slot that decided the duration
  int index = 0;
  Duration duration{};  // what the worker took
  Duration added{};     // the part of it that was injected: what the delays added, and, where a slow worker
                        // computes for real, what its factor did
};

struct RunRecord {
  std::optional<SpanRecorder> spans{};
  std::optional<std::vector<MicroBatchTime>> durations{};
  std::optional<std::vector<GradientArrival>> arrivals{};
};

// Where arrivals are recorded; null: they are not.
inline std::vector<GradientArrival>* arrivals_of(RunRecord* record) {
  return record && record->arrivals ? &*record->arrivals : nullptr;
}

}  // namespace syncopate
