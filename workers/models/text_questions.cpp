#include "workers/models/text_questions.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace syncopate {
namespace {

using Kind = TextTask::Kind;

// As it is shown, and what of it is asked for.
struct ShownText {
  std::span<const std::int32_t> tokens;
  MaskedText masked;                 // what `tokens` is of, where something is hidden
  std::vector<std::int64_t> places;  // of the outputs that are asked for; of a class none
  std::vector<std::int64_t> answers;
};

std::span<const std::int32_t> cut(std::span<const std::int32_t> tokens, std::int64_t longest) {
  return longest > 0 ? tokens.first(std::min(tokens.size(), static_cast<std::size_t>(longest))) : tokens;
}

// The tokens as they are, which the data set's labels ask for.
void ask_own_labels(std::span<const std::int32_t> labels, std::size_t asked, ShownText& shown) {
  for (std::size_t place = 0; place < asked; ++place) {
    if (labels[place] == ignored_label) continue;
    shown.places.push_back(static_cast<std::int64_t>(place));
    shown.answers.push_back(labels[place]);
  }
}

// `text.asked` may be fewer than it has: what stands behind is shown, as padding would be, and not asked for.
ShownText show(const Dataset& dataset, Split split, const AskedText& text, const TextTask& task, std::uint64_t seed) {
  const auto tokens = cut(dataset.tokens(split, text.sample), task.longest);
  const auto own = cut(tokens, text.asked);
  ShownText shown{.tokens = tokens, .masked = {}, .places = {}, .answers = {}};
  switch (task.kind) {
    case Kind::classification:
      shown.answers.resize(1);
      dataset.gather(split, {&text.sample, 1}, nullptr, shown.answers.data());
      break;
    case Kind::masked_lm:
      if (task.own_labels) {
        ask_own_labels(dataset.token_labels(split, text.sample), own.size(), shown);
        break;
      }
      shown.masked =
          mask(own, dataset.size(), task.masking, masking_stream(seed, split, text.sample, text.epoch, task.masking));
      shown.masked.tokens.insert(shown.masked.tokens.end(), tokens.begin() + std::ssize(own), tokens.end());
      shown.tokens = shown.masked.tokens;
      for (const std::int32_t place : shown.masked.places) {
        shown.places.push_back(place);
        shown.answers.push_back(tokens[static_cast<std::size_t>(place)]);
      }
      break;
    case Kind::causal_lm:  // the last token is only an answer, where there are others
      if (tokens.size() > 1) shown.tokens = tokens.first(tokens.size() - 1);
      for (std::size_t place = 1; place < own.size(); ++place) {
        shown.places.push_back(static_cast<std::int64_t>(place) - 1);
        shown.answers.push_back(tokens[place]);
      }
  }
  return shown;
}

at::Tensor tensor_of(const std::vector<std::int64_t>& values) {
  return at::from_blob(const_cast<std::int64_t*>(values.data()), {std::ssize(values)}, at::kLong).clone();
}

}  // namespace

TextQuestions ask(const Dataset& dataset, Split split, std::vector<AskedText> texts, const TextTask& task,
                  std::uint64_t seed) {
  std::ranges::stable_sort(texts, std::greater<>(), [&](const AskedText& text) {
    return cut(dataset.tokens(split, text.sample), task.longest).size();
  });
  std::vector<ShownText> shown;
  std::vector<std::span<const std::int32_t>> sequences;
  std::vector<std::int64_t> places, answers;
  std::map<std::int64_t, std::int64_t> questions;  // by micro-batch
  std::int64_t begin = 0;
  shown.reserve(texts.size());
  for (const AskedText& text : texts) {
    const ShownText& one = shown.emplace_back(show(dataset, split, text, task, seed));
    sequences.push_back(one.tokens);
    for (const std::int64_t place : one.places) places.push_back(begin + place);
    answers.insert(answers.end(), one.answers.begin(), one.answers.end());
    questions[text.micro_batch] += std::ssize(one.answers);
    begin += std::ssize(one.tokens);
  }
  TextQuestions result{.texts = SequenceBatch(sequences, task.pads),
                       .answers = tensor_of(answers),
                       .weights = at::empty({std::ssize(answers)}, at::kFloat),
                       .samples = {},
                       .epochs = {}};
  for (const AskedText& text : texts) {
    result.samples.push_back(text.sample);
    result.epochs.push_back(text.epoch);
  }
  if (task.kind != Kind::classification) result.texts.asked = tensor_of(places);
  float* weight = result.weights.data_ptr<float>();
  for (std::size_t i = 0; i < texts.size(); ++i)
    weight = std::fill_n(weight, shown[i].answers.size(), 1 / static_cast<float>(questions[texts[i].micro_batch]));
  return result;
}

}  // namespace syncopate
