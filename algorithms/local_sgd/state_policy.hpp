// What becomes of the rest of a training's state when models are averaged: optimizer moments, BatchNorm statistics.
// Source:  reference code of Gu et al. 2024 (hmgxr128/QSR): moments stay with their workers unless chosen;
//          statistics are not averaged, but estimated on 128 micro-batches before each evaluation.
// Differs: by default statistics are averaged along with the parameters; the estimate takes the micro-batches of
//          the steps to come, all at the published model, and costs no time.
#pragma once

#include <vector>

#include "workers/participant.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct StatePolicies {
  AveragePolicy average{};              // at each synchronisation
  int recalibration_micro_batches = 0;  // on which BatchNorm statistics are estimated anew; 0: they are as they are
};

// Reads
//   moments = "keep" | "average" | "reset"   of all moments (default: keep),
//   first_moment, second_moment              of one (default: as `moments`; SGD's momentum is the first),
//   buffers = "average" | "keep" | "reset" | "recalibrate"   (default: average),
//   recalibration_micro_batches              with "recalibrate" (default: 128).
StatePolicies read_state_policies(Settings& settings);
// The keys of the buffers alone, for methods that average once.
void read_buffer_policy(Settings& settings, StatePolicies& policies);

// Publishes the participant's model, or the ensemble, with what is to be estimated anew.
void publish(Participant& participant, const StatePolicies& policies, std::vector<ModelStatePtr> ensemble = {});
// The same of a model that is not the participant's own.
void publish(Participant& participant, const StatePolicies& policies, const ModelStatePtr& model,
             std::vector<ModelStatePtr> ensemble = {});

}  // namespace syncopate
