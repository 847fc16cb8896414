#include "algorithms/local_sgd/state_policy.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncopate {
namespace {

StatePolicy read_moment(Settings& settings, const Key& key, StatePolicy fallback, std::string_view words = {}) {
  return settings.choice(
      key, {{"keep", StatePolicy::keep}, {"average", StatePolicy::average}, {"reset", StatePolicy::reset}}, fallback,
      words);
}

// `count` micro-batches, as many of each worker and from as few steps as there are.
std::vector<MicroBatch> micro_batches_to_come(const Participant& participant, int count) {
  const int workers = participant.size();
  std::vector<MicroBatch> result;
  for (int i = 0; i < count; ++i) {
    const int turn = i / workers;
    result.push_back({Rank{i % workers}, participant.step() + turn / participant.micro_batches(),
                      turn % participant.micro_batches()});
  }
  return result;
}

}  // namespace

StatePolicies read_state_policies(Settings& settings) {
  StatePolicies policies;
  const Key all{"moments", "What becomes of the optimizer's moments when models are averaged."};
  const Key first{"first_moment", "The same of the first moment alone, which is SGD's momentum."};
  const Key second{"second_moment", "The same of the second moment alone."};
  const StatePolicy moments = read_moment(settings, all, StatePolicy::keep);
  policies.average.moments = {read_moment(settings, first, moments, "as `moments`"),
                              read_moment(settings, second, moments, "as `moments`")};
  read_buffer_policy(settings, policies);
  return policies;
}

void read_buffer_policy(Settings& settings, StatePolicies& policies) {
  constexpr std::optional<StatePolicy> recalibrated;  // kept, and estimated anew
  const Key key{"buffers",
                "What becomes of BatchNorm statistics then; recalibrate: estimated anew before an evaluation."};
  const auto buffers = settings.choice<std::optional<StatePolicy>>(key,
                                                                   {{"average", StatePolicy::average},
                                                                    {"keep", StatePolicy::keep},
                                                                    {"reset", StatePolicy::reset},
                                                                    {"recalibrate", recalibrated}},
                                                                   StatePolicy::average);
  policies.average.buffers = buffers.value_or(StatePolicy::keep);
  if (buffers) return;
  const Key count{"recalibration_micro_batches", "On how many micro-batches they are estimated.", "micro-batches"};
  policies.recalibration_micro_batches = static_cast<int>(settings.integer(count, 1, 1'000'000, 128));
}

void publish(Participant& participant, const StatePolicies& policies, std::vector<ModelStatePtr> ensemble) {
  if (participant.rank() != Rank{0}) return;  // nobody else is heard, and the list costs time
  publish(participant, policies, participant.model(), std::move(ensemble));
}

void publish(Participant& participant, const StatePolicies& policies, const ModelStatePtr& model,
             std::vector<ModelStatePtr> ensemble) {
  if (participant.rank() != Rank{0}) return;
  participant.publish(
      Publication{.model = model,
                  .ensemble = std::move(ensemble),
                  .recalibration = micro_batches_to_come(participant, policies.recalibration_micro_batches)});
}

// The card.
void read_model_weights(Settings& settings, bool divides_data, StatePolicies& policies) {
  policies.weights = settings.choice(
      {"weights", "How models count in an average: alike, or by their workers' training samples (FedAvg)."},
      {{"equal", ModelWeights::equal}, {"samples", ModelWeights::samples}}, ModelWeights::equal);
  check_model_weights(settings, divides_data, policies);
}

void check_model_weights(Settings& settings, bool divides_data, const StatePolicies& policies) {
  if (policies.count_alike()) return;
  if (!divides_data)
    settings.fault("weights",
                   "must be \"equal\" unless training.partition divides the data among the workers: else all have as "
                   "many samples");
  if (settings.has("compression"))
    settings.fault("weights", "must be \"equal\" with a table compression: compressed averages have equal weights");
}

}  // namespace syncopate
