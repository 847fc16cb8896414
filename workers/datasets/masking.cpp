#include "workers/datasets/masking.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

#include "workers/random/sets.hpp"

namespace syncopate {
namespace {

// Halves to even, as the source's language rounds.
std::int64_t asked_for(std::size_t length, const MaskingOptions& options) {
  const auto share = static_cast<std::int64_t>(std::nearbyint(options.share * static_cast<double>(length)));
  return std::min(options.most, std::max<std::int64_t>(1, share));
}

}  // namespace

MaskedText mask(std::span<const std::int32_t> tokens, const DatasetSize& size, const MaskingOptions& options,
                const RandomStream& stream) {
  assert(size.marks.mask >= 0);
  const std::vector<std::int32_t>& never = size.marks.never_masked;
  std::vector<std::int32_t> candidates;
  for (std::size_t place = 0; place < tokens.size(); ++place)
    if (std::ranges::find(never, tokens[place]) == never.end()) candidates.push_back(static_cast<std::int32_t>(place));
  const auto count = static_cast<int>(std::min(asked_for(tokens.size(), options), std::ssize(candidates)));

  MaskedText masked{.tokens = {tokens.begin(), tokens.end()}, .places = {}};
  for (const int chosen : draw_set(static_cast<int>(candidates.size()), count, stream))
    masked.places.push_back(candidates[static_cast<std::size_t>(chosen)]);
  std::ranges::sort(masked.places);
  std::uint32_t index = static_cast<std::uint32_t>(count);
  for (const std::int32_t place : masked.places) {
    const double kind = stream.uniform(index++), any = stream.uniform(index++);
    std::int32_t& shown = masked.tokens[static_cast<std::size_t>(place)];
    if (kind < 0.8)
      shown = size.marks.mask;
    else if (kind >= 0.9)
      shown = static_cast<std::int32_t>(any * static_cast<double>(size.shape.vocabulary));
  }
  return masked;
}

RandomStream masking_stream(std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                            const MaskingOptions& options) {
  constexpr std::uint8_t dynamic_stream = 0, test_stream = 1, copy_stream = 2, validation_stream = 3;
  RandomStream stream{.seed = seed,
                      .purpose = Purpose::masking,
                      .stream = dynamic_stream,
                      .worker = Rank(static_cast<int>(sample)),
                      .step = epoch};
  if (split != Split::train) {
    stream.stream = split == Split::test ? test_stream : validation_stream;
    stream.step = 0;
  } else if (options.copies > 0) {
    stream.stream = copy_stream;
    stream.step = epoch % options.copies;
  }
  return stream;
}

}  // namespace syncopate
