// What layers of texts compute.
#include <tuple>

#include "workers/models/forward_pass.hpp"
#include "workers/models/sequence_batch.hpp"

namespace syncopate {

void ForwardPass::operator()(const layer::BagOfWords& layer) {
  constexpr std::int64_t mean = 1;
  const auto rows = at::embedding_bag(parameter(layer.weight), texts_->tokens, texts_->begins,
                                      /*scale_grad_by_freq=*/false, mean);
  x_ = std::get<0>(rows) + parameter(layer.bias);
}

}  // namespace syncopate
