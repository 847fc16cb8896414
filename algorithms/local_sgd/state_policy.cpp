#include "algorithms/local_sgd/state_policy.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace syncopate {
namespace {

StatePolicy policy_named(std::string_view name) {
  return name == "average" ? StatePolicy::average : name == "reset" ? StatePolicy::reset : StatePolicy::keep;
}

std::string read_moment(Settings& settings, std::string_view key, const std::string& fallback) {
  static constexpr std::string_view names[] = {"keep", "average", "reset"};
  const std::string name = settings.choice(key, names, fallback);
  return name.empty() ? fallback : name;
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
  const std::string moments = read_moment(settings, "moments", "keep");
  policies.average.moments = {policy_named(read_moment(settings, "first_moment", moments)),
                              policy_named(read_moment(settings, "second_moment", moments))};
  read_buffer_policy(settings, policies);
  return policies;
}

void read_buffer_policy(Settings& settings, StatePolicies& policies) {
  static constexpr std::string_view names[] = {"average", "keep", "reset", "recalibrate"};
  const std::string buffers = settings.choice("buffers", names, "average");
  policies.average.buffers = policy_named(buffers);
  if (buffers == "recalibrate")
    policies.recalibration_micro_batches =
        static_cast<int>(settings.integer("recalibration_micro_batches", 1, 1'000'000, 128));
}

void publish(Participant& participant, const StatePolicies& policies, std::vector<ModelStatePtr> ensemble) {
  if (participant.rank() != Rank{0}) return;  // nobody else is heard, and the list costs time
  participant.publish(
      Publication{.model = participant.model(),
                  .ensemble = std::move(ensemble),
                  .recalibration = micro_batches_to_come(participant, policies.recalibration_micro_batches)});
}

}  // namespace syncopate
