// What a module of the user's own computes.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "workers/models/forward_pass.hpp"
#include "workers/models/script_module.hpp"
#include "workers/models/seeded_draws.hpp"
#include "workers/models/sequence_batch.hpp"

namespace syncopate {
namespace {

// The statistics of the batch itself. A module moves a buffer from v to (1 - m) v + m s, with a momentum m of its own:
// from 0 it comes to m s, from 1 to 1 - m + m s.
void measure(const std::function<void()>& forward, const Network& network, const std::vector<at::Tensor>& buffers) {
  const auto start_from = [&](float value) {
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const Buffer& buffer = network.buffers()[b];
      if (buffer.counts)
        at::Tensor(buffers[b]).copy_(at::from_blob(const_cast<float*>(buffer.given->data()), buffers[b].sizes()));
      else
        at::Tensor(buffers[b]).fill_(value);
    }
    SeededDraws::repeat();
    forward();
  };
  start_from(0);
  std::vector<at::Tensor> from_0;
  for (const at::Tensor& buffer : buffers) from_0.push_back(buffer.clone());
  start_from(1);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (network.buffers()[b].counts || buffers[b].numel() == 0) continue;
    const at::Tensor of_0 = from_0[b].flatten();
    // Where the statistic is smallest, the difference is exact to the last bits.
    const auto place = of_0.abs().argmin();
    const double momentum = 1 - (buffers[b].flatten()[place] - of_0[place]).item<double>();
    at::Tensor(buffers[b]).copy_(from_0[b] / momentum);
  }
}

// (texts, longest) int64.
at::Tensor tokens_of(const TextGroup& group, const SequenceBatch& texts, std::int32_t padding) {
  const at::Tensor tokens = texts.tokens.narrow(0, group.begin, group.tokens);
  if (!group.slots_of_tokens.defined()) return tokens.view({group.texts, group.longest});
  at::Tensor slots = at::full({group.texts * group.longest}, std::int64_t{padding}, at::kLong);
  return slots.scatter_(0, group.slots_of_tokens, tokens).view({group.texts, group.longest});
}

at::Tensor lengths_of(const TextGroup& group) {
  return group.lengths.defined() ? group.lengths : at::full({group.texts}, group.longest, at::kLong);
}

// Of what a group's places give, (texts, longest, outputs), the rows that are asked for: those of its own tokens, which
// ascend.
at::Tensor asked_of(const TextGroup& group, const SequenceBatch& texts, const at::Tensor& outputs) {
  const std::span<const std::int64_t> asked(texts.asked.data_ptr<std::int64_t>(),
                                            static_cast<std::size_t>(texts.asked.numel()));
  const auto begin = std::ranges::lower_bound(asked, group.begin) - asked.begin();
  const auto end = std::ranges::lower_bound(asked, group.begin + group.tokens) - asked.begin();
  at::Tensor places = texts.asked.narrow(0, begin, end - begin) - group.begin;
  if (group.slots_of_tokens.defined()) places = group.slots_of_tokens.index_select(0, places);
  return at::embedding(outputs.reshape({group.texts * group.longest, -1}), places);
}

}  // namespace

std::vector<std::int64_t> script_input_sizes(std::int64_t samples, const SampleShape& shape) {
  if (shape.channels == 1 && shape.height == 1) return {samples, shape.width};
  return {samples, shape.channels, shape.height, shape.width};
}

void ForwardPass::operator()(const layer::Script& layer) {
  if (texts_)
    forward_texts(layer);
  else
    forward_images(layer);
}

void ForwardPass::forward_texts(const layer::Script& layer) {
  const std::vector<at::Tensor> no_buffers;
  std::vector<at::Tensor> parts;
  for (const TextGroup& group : texts_->groups) {
    const at::Tensor lengths = lengths_of(group);
    const at::Tensor outputs = layer.module->forward(
        parameters_, no_buffers, tokens_of(group, *texts_, network_.task().padding), mode_, &lengths);
    parts.push_back(texts_->asked.defined() ? asked_of(group, *texts_, outputs) : outputs);
  }
  x_ = parts.size() == 1 ? parts.front() : at::cat(parts);
}

void ForwardPass::forward_images(const layer::Script& layer) {
  const at::Tensor inputs = x_.view(script_input_sizes(x_.size(0), network_.input()));
  const auto forward = [&] { x_ = layer.module->forward(parameters_, buffers_, inputs, mode_); };
  if (mode_ == Mode::measure && !buffers_.empty())
    measure(forward, network_, buffers_);
  else
    forward();
}

}  // namespace syncopate
