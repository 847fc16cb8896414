// What becomes of the rest of a training's state when models are averaged: optimizer moments, BatchNorm statistics.
// Source:  reference code of Gu et al. 2024 (hmgxr128/QSR): moments stay with their workers unless chosen;
//          statistics are not averaged, but estimated on 128 micro-batches before each evaluation.
//          McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data": weights by
//          samples (FedAvg).
// Differs: by default statistics are averaged along with the parameters; the estimate takes the micro-batches of
//          the steps to come, all at the published model, and costs no time.
#pragma once

#include <vector>

#include "workers/participant.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/sample_weights.hpp"

namespace syncopate {

// How workers' models count in an average of all: by how many training samples each has, as in FedAvg (McMahan et al.
// 2017), or alike.
enum class ModelWeights { equal, samples };

struct StatePolicies {
  AveragePolicy average{};              // at each synchronisation
  int recalibration_micro_batches = 0;  // on which BatchNorm statistics are estimated anew; 0: they are as they are
  ModelWeights weights = ModelWeights::equal;

  bool count_alike() const { return weights == ModelWeights::equal; }
  // Averaging::weight of each worker's model.
  double model_weight() const { return count_alike() ? 1 : by_samples; }
};

// Reads
//   moments = "keep" | "average" | "reset"   of all moments (default: keep),
//   first_moment, second_moment              of one (default: as `moments`; SGD's momentum is the first),
//   buffers = "average" | "keep" | "reset" | "recalibrate"   (default: average),
//   recalibration_micro_batches              with "recalibrate" (default: 128).
StatePolicies read_state_policies(Settings& settings);
// The keys of the buffers alone, for methods that average once.
void read_buffer_policy(Settings& settings, StatePolicies& policies);

// Reads weights = "equal" | "samples" (default: equal). By samples only where the data are divided among the
// workers, and averages are not compressed.
void read_model_weights(Settings& settings, bool divides_data, StatePolicies& policies);
// The fault of `weights` alone, where a method has read them.
void check_model_weights(Settings& settings, bool divides_data, const StatePolicies& policies);

// Publishes the participant's model, or the ensemble, with what is to be estimated anew.
void publish(Participant& participant, const StatePolicies& policies, std::vector<ModelStatePtr> ensemble = {});
// The same of a model that is not the participant's own.
void publish(Participant& participant, const StatePolicies& policies, const ModelStatePtr& model,
             std::vector<ModelStatePtr> ensemble = {});

}  // namespace syncopate
