#include "algorithms/quorum/uneven_mean.hpp"

#include <algorithm>
#include <cstdint>

namespace syncopate {

void step_to_mean(Server& server, std::vector<Message> differences, const UnevenMean& how) {
  const auto work_of = [](const Message& one) { return one.work().micro_batches; };
  if (how.leaves_out_most && differences.size() > 1) {
    const auto most = std::ranges::max_element(differences, {}, work_of);
    server.accept(*most, {.is_needed = false});
    differences.erase(most);
  }
  const bool by_steps = how.weights == UnevenMean::Weights::steps;
  std::int64_t micro_batches = 0;
  for (const Message& one : differences) micro_batches += work_of(one);
  const auto total = static_cast<double>(by_steps ? micro_batches : std::ssize(differences));
  std::vector<WeightedState> terms = {{1, server.model()}};
  for (const Message& one : differences) {
    server.accept(one);
    terms.push_back({-static_cast<double>(by_steps ? work_of(one) : 1) / total, one.model});
  }
  server.descend(server.combine(terms), micro_batches);
  server.publish();
}

// The card.
UnevenMean read_uneven_mean(Settings& settings) {
  using Weights = UnevenMean::Weights;
  UnevenMean how;
  how.weights = settings.choice({"weights", "How models are weighted in the mean: all alike, or by their steps."},
                                {{"equal", Weights::equal}, {"steps", Weights::steps}}, how.weights);
  how.leaves_out_most =
      settings.flag({"leaves_out_most",
                     "Whether the worker with most local steps is left out of the mean, as in code of the authors."},
                    how.leaves_out_most);
  return how;
}

}  // namespace syncopate
