#include "workers/models/batch.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace syncopate {

namespace {

using Texts = std::span<const std::span<const std::int32_t>>;

// Whether texts of these lengths may share a group. Padding of up to 3 tokens, or of up to a quarter of the longer
// text, costs less than another group.
bool may_join(std::int64_t length, std::int64_t other, bool pads) {
  if (!pads) return length == other;
  constexpr std::int64_t always = 3;
  const auto [shorter, longer] = std::minmax(length, other);
  return longer - shorter <= std::max(always, longer / 4);
}

at::Tensor indices(std::int64_t count) { return at::empty({count}, at::kLong); }

TextGroup group_of(Texts texts, std::int64_t begin) {
  TextGroup group;
  group.begin = begin;
  group.texts = std::ssize(texts);
  for (const auto& text : texts) {
    group.tokens += std::ssize(text);
    group.longest = std::max(group.longest, std::ssize(text));
    group.sizes.push_back(std::ssize(text));
  }
  if (group.tokens == group.texts * group.longest) return group;
  group.tokens_of_slots = at::zeros({group.texts * group.longest}, at::kLong);
  group.slots_of_tokens = indices(group.tokens);
  group.lengths = indices(group.texts);
  auto* const tokens_of_slots = group.tokens_of_slots.data_ptr<std::int64_t>();
  auto* const slots_of_tokens = group.slots_of_tokens.data_ptr<std::int64_t>();
  std::int64_t token = 0, slot = 0;
  for (std::size_t i = 0; i < texts.size(); ++i, slot += group.longest) {
    const std::int64_t length = std::ssize(texts[i]);
    group.lengths.data_ptr<std::int64_t>()[i] = length;
    std::iota(tokens_of_slots + slot, tokens_of_slots + slot + length, token);
    std::iota(slots_of_tokens + token, slots_of_tokens + token + length, slot);
    token += length;
  }
  return group;
}

using Kind = TextTask::Kind;

// A text as the model sees it, and the labels to predict.
struct ShownText {
  std::span<const std::int32_t> tokens{};
  std::vector<std::int32_t> read{};    // owns the memory of `tokens` if the data set does not
  MaskedText masked{};                 // owns the memory of `tokens` if some are hidden
  std::vector<std::int64_t> places{};  // positions of the outputs that predict the labels; empty for a class
  std::vector<std::int64_t> answers{};
};

std::span<const std::int32_t> cut(std::span<const std::int32_t> tokens, std::int64_t longest) {
  return longest > 0 ? tokens.first(std::min(tokens.size(), static_cast<std::size_t>(longest))) : tokens;
}

// The model also sees the tokens after the first `text.asked`, but need not predict them.
ShownText show(const Dataset& dataset, Split split, const AskedText& text, const TextTask& task, std::uint64_t seed) {
  ShownText shown;
  const auto tokens =
      cut(dataset.tokens(split, text.sample, {.seed = seed, .epoch = text.epoch}, shown.read), task.longest);
  const auto own = cut(tokens, text.asked);
  shown.tokens = tokens;
  const auto add_question = [&](auto place, std::int32_t answer) {
    shown.places.push_back(static_cast<std::int64_t>(place));
    shown.answers.push_back(answer);
  };
  switch (task.kind) {
    case Kind::classification:
      shown.answers.resize(1);
      dataset.gather(split, {&text.sample, 1}, nullptr, shown.answers.data());
      break;
    case Kind::masked_lm:
      if (task.own_labels) {
        const auto labels = dataset.token_labels(split, text.sample);
        for (std::size_t place = 0; place < own.size(); ++place)
          if (labels[place] != ignored_label) add_question(place, labels[place]);
        break;
      }
      shown.masked =
          mask(own, dataset.size(), task.masking, masking_stream(seed, split, text.sample, text.epoch, task.masking));
      shown.masked.tokens.insert(shown.masked.tokens.end(), tokens.begin() + std::ssize(own), tokens.end());
      shown.tokens = shown.masked.tokens;
      for (const auto place : shown.masked.places) add_question(place, tokens[static_cast<std::size_t>(place)]);
      break;
    case Kind::causal_lm:  // the last token is only predicted, unless it is the only token
      if (tokens.size() > 1) shown.tokens = tokens.first(tokens.size() - 1);
      for (std::size_t place = 1; place < own.size(); ++place) add_question(place - 1, tokens[place]);
  }
  return shown;
}

at::Tensor tensor_of(const std::vector<std::int64_t>& values) {
  return at::from_blob(const_cast<std::int64_t*>(values.data()), {std::ssize(values)}, at::kLong).clone();
}

}  // namespace

SequenceBatch::SequenceBatch(const std::vector<std::span<const std::int32_t>>& texts, bool pads) {
  std::int64_t count = 0;
  for (const auto& text : texts) count += std::ssize(text);
  tokens = indices(count);
  places = indices(count);
  begins = indices(std::ssize(texts));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    begins.data_ptr<std::int64_t>()[i] = begin;
    std::ranges::copy(texts[i], tokens.data_ptr<std::int64_t>() + begin);
    std::iota(places.data_ptr<std::int64_t>() + begin, places.data_ptr<std::int64_t>() + begin + std::ssize(texts[i]),
              std::int64_t{0});
    begin += std::ssize(texts[i]);
  }
  begin = 0;
  for (std::size_t first = 0, end = 0; first < texts.size(); first = end) {
    while (end < texts.size() && may_join(std::ssize(texts[end]), std::ssize(texts[first]), pads)) ++end;
    groups.push_back(group_of(Texts(texts).subspan(first, end - first), begin));
    begin += groups.back().tokens;
  }
}

SampleBatch gathered(const Dataset& dataset, Split split, std::uint64_t seed, std::vector<std::uint32_t> samples,
                     std::vector<std::int64_t> epochs, FlatVector& memory) {
  const auto& [channels, height, width, vocabulary] = dataset.size().shape;
  const std::int64_t n = std::ssize(samples), targets = dataset.size().targets;
  if (const auto floats = static_cast<std::size_t>(n * channels * height * width); memory.size() != floats)
    memory = FlatVector(floats);
  SampleBatch batch{.inputs = at::from_blob(memory.data(), {n, channels, height, width}, at::kFloat),
                    .answers = indices(n),
                    .samples = std::move(samples),
                    .epochs = std::move(epochs)};
  std::int64_t* const labels = batch.answers.data_ptr<std::int64_t>();
  if (batch.epochs.empty())
    dataset.gather(split, batch.samples, memory.data(), labels);
  else
    dataset.gather_training(batch.visits(seed), memory.data(), labels);
  if (targets > 0) {
    batch.targets = at::empty({n, targets}, at::kFloat);
    dataset.gather_targets(split, batch.samples, batch.targets.data_ptr<float>());
  }
  return batch;
}

SampleBatch ask(const Dataset& dataset, Split split, std::vector<AskedText> texts, const TextTask& task,
                std::uint64_t seed) {
  std::ranges::stable_sort(texts, std::greater<>(), [&](const AskedText& text) {
    const std::int64_t length = dataset.length(split, text.sample);
    return task.longest > 0 ? std::min(length, task.longest) : length;
  });
  std::vector<ShownText> shown;
  std::vector<std::span<const std::int32_t>> sequences;
  std::vector<std::int64_t> places, answers;
  std::map<std::int64_t, std::int64_t> targets;  // number of labels, by micro-batch
  std::int64_t begin = 0;
  shown.reserve(texts.size());
  for (const AskedText& text : texts) {
    const ShownText& one = shown.emplace_back(show(dataset, split, text, task, seed));
    sequences.push_back(one.tokens);
    for (const std::int64_t place : one.places) places.push_back(begin + place);
    answers.insert(answers.end(), one.answers.begin(), one.answers.end());
    targets[text.micro_batch] += std::ssize(one.answers);
    begin += std::ssize(one.tokens);
  }
  SequenceBatch batch(sequences, task.pads);
  if (task.kind != Kind::classification) batch.asked = tensor_of(places);
  SampleBatch result{.inputs = std::move(batch),
                     .answers = tensor_of(answers),
                     .weights = at::empty({std::ssize(answers)}, at::kFloat)};
  for (const AskedText& text : texts) {
    result.samples.push_back(text.sample);
    result.epochs.push_back(text.epoch);
  }
  float* weight = result.weights.data_ptr<float>();
  for (std::size_t i = 0; i < texts.size(); ++i)
    weight = std::fill_n(weight, shown[i].answers.size(), 1 / static_cast<float>(targets[texts[i].micro_batch]));
  return result;
}

}  // namespace syncopate
