#include "workers/models/mixup.hpp"

#include <boost/math/special_functions/beta.hpp>

#include "workers/random/permutation.hpp"

namespace syncopate {

Mixture drawn_mixture(std::uint64_t seed, const MicroBatch& micro_batch, std::size_t samples, double alpha) {
  const RandomStream stream{
      .seed = seed, .purpose = Purpose::mixup, .worker = micro_batch.worker, .step = micro_batch.step};
  // Micro-batches of one step follow each other in its stream.
  const auto first = static_cast<std::uint32_t>(static_cast<std::size_t>(micro_batch.index) * (samples + 1));
  return {.share = static_cast<float>(boost::math::ibeta_inv(alpha, alpha, stream.uniform(first))),
          .partners = permutation(stream, samples, first + 1)};
}

void mix(const Mixture& mixture, std::span<float> inputs) {
  const std::size_t features = inputs.size() / mixture.partners.size();
  thread_local std::vector<float> before;
  before.assign(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < mixture.partners.size(); ++i) {
    const float* const partner = before.data() + mixture.partners[i] * features;
    float* const row = inputs.data() + i * features;
    for (std::size_t f = 0; f < features; ++f) row[f] += mixture.share * (partner[f] - row[f]);
  }
}

}  // namespace syncopate
