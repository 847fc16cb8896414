// What layers of texts compute: tensors (t, width), all tokens of a batch one after another (sequence_batch.hpp).
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "workers/models/forward_pass.hpp"
#include "workers/models/sequence_batch.hpp"

namespace syncopate {
namespace {

// What is added to the scores (texts, heads, longest, longest) of a group; undefined: nothing.
at::Tensor forbidden(const TextGroup& group, bool causal, const at::Tensor& like) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  // Whatever follows a text's end also follows each of its tokens.
  if (causal) return at::triu(at::full({group.longest, group.longest}, never, like.options()), 1);
  if (!group.lengths.defined()) return {};
  const auto places = at::arange(group.longest, at::kLong);
  const auto behind = places.unsqueeze(0).ge(group.lengths.unsqueeze(1));  // (texts, longest)
  return at::zeros(behind.sizes(), like.options()).masked_fill_(behind, never).unsqueeze(1).unsqueeze(2);
}

// softmax(Q K^T / sqrt(d)) V of each text, head by head: (tokens, 3 width) to (tokens, width).
at::Tensor attend(const TextGroup& group, const layer::TextAttention& layer, const at::Tensor& tokens) {
  const auto width = tokens.size(1) / (3 * layer.heads);
  const bool is_padded = group.tokens_of_slots.defined();
  // Rows are taken as an embedding takes them, whose backward pass is the faster one.
  const auto slots = is_padded ? at::embedding(tokens, group.tokens_of_slots) : tokens;
  const auto parts =
      slots.reshape({group.texts, group.longest, 3, layer.heads, width}).permute({2, 0, 3, 1, 4}).unbind();
  const auto scale = 1 / std::sqrt(static_cast<double>(width));
  auto scores = at::matmul(parts[0] * scale, parts[1].transpose(2, 3));
  if (const auto added = forbidden(group, layer.causal, tokens); added.defined()) scores = scores + added;
  const auto heads = at::matmul(at::softmax(scores, 3), parts[2]);
  const auto rows = heads.transpose(1, 2).reshape({group.texts * group.longest, layer.heads * width});
  return is_padded ? at::embedding(rows, group.slots_of_tokens) : rows;
}

// Of the named rows, those from each beginning to the next one: (n, width).
at::Tensor mean_of_each(const at::Tensor& rows, const at::Tensor& names, const at::Tensor& begins) {
  if (rows.scalar_type() == at::kDouble) {  // of an embedding bag LibTorch has no second derivatives
    const auto sizes = at::diff(at::cat({begins, at::full({1}, names.numel(), at::kLong)}));
    const auto owners = at::repeat_interleave(sizes);
    const auto sums =
        at::zeros({begins.numel(), rows.size(1)}, rows.options()).index_add(0, owners, rows.index_select(0, names));
    return sums / sizes.unsqueeze(1);
  }
  constexpr std::int64_t mean = 1;
  return std::get<0>(at::embedding_bag(rows, names, begins, /*scale_grad_by_freq=*/false, mean));
}

}  // namespace

void ForwardPass::operator()(const layer::BagOfWords& layer) {
  x_ = mean_of_each(parameter(layer.weight), texts_->tokens, texts_->begins) + parameter(layer.bias);
}

void ForwardPass::operator()(const layer::WordEmbedding& layer) {
  x_ = at::embedding(parameter(layer.words), texts_->tokens) + at::embedding(parameter(layer.places), texts_->places);
}

void ForwardPass::operator()(const layer::TextAttention& layer) {
  std::vector<at::Tensor> parts;
  for (const TextGroup& group : texts_->groups)
    parts.push_back(attend(group, layer, x_.narrow(0, group.begin, group.tokens)));
  x_ = parts.size() == 1 ? parts.front() : at::cat(parts);
}

void ForwardPass::operator()(const layer::FirstTokens&) { x_ = at::embedding(x_, texts_->begins); }

void ForwardPass::operator()(const layer::MeanOfTexts&) {
  x_ = mean_of_each(x_, at::arange(x_.size(0), at::kLong), texts_->begins);
}

void ForwardPass::operator()(const layer::AskedTokens&) { x_ = at::embedding(x_, texts_->asked); }

}  // namespace syncopate
