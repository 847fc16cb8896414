#include "workers/models/sequence_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace syncopate {
namespace {

using Texts = std::span<const std::span<const std::int32_t>>;

// A group's slots are at most a third more than its longest text's tokens each would be, or than few: what is padded
// costs less than another group.
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

}  // namespace syncopate
