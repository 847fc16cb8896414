// What dropout computes. Source: Srivastava et al. 2014, scaled in training instead of in evaluations.
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "workers/datasets/visits.hpp"
#include "workers/models/forward_pass.hpp"
#include "workers/models/sequence_batch.hpp"

namespace syncopate {
namespace {

// 0 for the share of the features, and for the others what keeps their mean.
void write_mask(const std::vector<double>& uniform, double share, float* mask) {
  const auto kept = static_cast<float>(1 / (1 - share));
  for (std::size_t i = 0; i < uniform.size(); ++i) mask[i] = uniform[i] < share ? 0.0f : kept;
}

}  // namespace

void ForwardPass::operator()(const layer::Dropout& layer) {
  if (mode_ == Mode::evaluate || layer.share == 0) return;
  const at::Tensor mask = at::empty(x_.sizes(), at::kFloat);
  float* row = mask.data_ptr<float>();
  const std::vector<std::int64_t> rows = rows_of_samples();
  const std::int64_t features = x_.numel() / x_.size(0);
  thread_local std::vector<double> uniform;
  for (std::size_t i = 0; i < rows.size(); row += uniform.size(), ++i) {
    uniform.resize(static_cast<std::size_t>(rows[i] * features));
    visits_->stream(Purpose::dropout, i).fill_uniform(static_cast<std::uint32_t>(layer.first_number), uniform);
    write_mask(uniform, layer.share, row);
  }
  x_ = x_ * mask;
}

// One each, or of texts whose tokens are not yet brought together as many as they have tokens.
std::vector<std::int64_t> ForwardPass::rows_of_samples() const {
  assert(visits_ && (texts_ || visits_->size() == static_cast<std::size_t>(x_.size(0))));
  std::vector<std::int64_t> rows(visits_->size(), 1);
  if (!texts_ || x_.size(0) != texts_->tokens.numel()) return rows;
  const std::int64_t* const begins = texts_->begins.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = (i + 1 < rows.size() ? begins[i + 1] : texts_->tokens.numel()) - begins[i];
  return rows;
}

}  // namespace syncopate
