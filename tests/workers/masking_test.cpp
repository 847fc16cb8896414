#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "workers/data/dataset.hpp"

namespace syncopate {
namespace {

constexpr std::int32_t hidden = 2, first = 3, last = 4;
const DatasetSize size{.shape = {.width = 1024, .vocabulary = 50},
                       .marks = {.mask = hidden, .never_masked = {first, last}}};

// first, 10, 11, ..., last
std::vector<std::int32_t> text_of(std::size_t length) {
  std::vector<std::int32_t> tokens(length);
  std::iota(tokens.begin(), tokens.end(), 9);
  tokens.front() = first;
  tokens.back() = last;
  return tokens;
}

std::size_t asked(std::size_t length, const MaskingOptions& options) {
  return mask(text_of(length), size, options, masking_stream(1, Split::train, 7, 0, options)).places.size();
}

// Numbers of the masked language model's sheet: 19 of 128 (of at most 20), 77 of 512 (of at most 80).
TEST(Masking, AsksForAShareOfAllTokensAtLeastOneAndNotTooMany) {
  EXPECT_EQ(asked(128, {.most = 20}), 19u);
  EXPECT_EQ(asked(512, {.most = 80}), 77u);
  EXPECT_EQ(asked(512, {.most = 20}), 20u);
  EXPECT_EQ(asked(3, {}), 1u) << "round(0.45) = 0";
  EXPECT_EQ(asked(10, {}), 2u) << "round(1.5) = 2";
  EXPECT_EQ(asked(30, {}), 4u) << "round(4.5) = 4, halves to even";
  EXPECT_EQ(asked(2, {}), 0u) << "its two ends are never asked for";
  EXPECT_EQ(asked(5, {.share = 1}), 3u);
}

TEST(Masking, HidesEightOfTenKeepsOneAndShowsAnyTokenForOne) {
  constexpr int texts = 4000;
  const auto text = text_of(22);  // 3 asked for
  std::map<std::int32_t, int> shown_for_kept;
  int masks = 0, kept = 0, total = 0;
  std::map<std::int32_t, int> places, others;
  for (int sample = 0; sample < texts; ++sample) {
    const auto masked =
        mask(text, size, {}, masking_stream(1, Split::train, static_cast<std::uint32_t>(sample), 0, {}));
    ASSERT_EQ(masked.places.size(), 3u);
    ASSERT_THAT(masked.places, testing::WhenSorted(testing::ContainerEq(masked.places)));
    EXPECT_EQ(std::set(masked.places.begin(), masked.places.end()).size(), 3u);
    std::set<std::int32_t> asked_for(masked.places.begin(), masked.places.end());
    for (std::int32_t place = 0; place < 22; ++place) {
      const std::int32_t shown = masked.tokens[static_cast<std::size_t>(place)];
      const std::int32_t is = text[static_cast<std::size_t>(place)];
      if (!asked_for.contains(place)) {
        EXPECT_EQ(shown, is);
        continue;
      }
      ++places[place];
      ++total;
      if (shown == hidden)
        ++masks;
      else if (shown == is)
        ++kept;
      else
        ++others[shown];
    }
  }
  // Of all that are asked for 1 in 50 of a tenth happens to be the mask, or the same token.
  const auto near = [&](int found, double share) {
    EXPECT_NEAR(found, share * total, 4 * std::sqrt(total * share * (1 - share))) << share;
  };
  near(masks, 0.8 + 0.1 / 50);
  near(kept, 0.1 + 0.1 / 50);
  EXPECT_EQ(others.size(), 49u) << "any token of the vocabulary, the first, the last and padding among them";
  for (const auto& [token, count] : others) near(count, 0.1 / 50);
  EXPECT_EQ(places.size(), 20u);
  EXPECT_FALSE(places.contains(0) || places.contains(21));
  for (const auto& [place, count] : places) near(count, 1.0 / 20);
}

// Static: a text's copies take turns. Dynamic: anew at each visit.
TEST(Masking, FollowsSeedSampleAndEpoch) {
  const auto text = text_of(100);
  const auto tokens = [&](std::uint64_t seed, Split split, std::uint32_t sample, std::int64_t epoch,
                          std::int64_t copies = 0) {
    const MaskingOptions options{.copies = copies};
    return mask(text, size, options, masking_stream(seed, split, sample, epoch, options)).tokens;
  };
  const auto base = tokens(1, Split::train, 5, 0);
  EXPECT_EQ(tokens(1, Split::train, 5, 0), base);
  EXPECT_NE(tokens(2, Split::train, 5, 0), base);
  EXPECT_NE(tokens(1, Split::train, 6, 0), base);
  EXPECT_NE(tokens(1, Split::train, 5, 1), base);
  EXPECT_NE(tokens(1, Split::train, 5, 10), base);
  EXPECT_EQ(tokens(1, Split::train, 5, 13, 10), tokens(1, Split::train, 5, 3, 10));
  EXPECT_NE(tokens(1, Split::train, 5, 9, 10), tokens(1, Split::train, 5, 0, 10));
  EXPECT_NE(tokens(1, Split::test, 5, 0), base);
  EXPECT_EQ(tokens(1, Split::test, 5, 3), tokens(1, Split::test, 5, 0)) << "evaluations are comparable";
}

// The sample of that number is another text there, and the masks of its first visit are none that training shows.
TEST(Masking, OfAValidationSampleIsDrawnOnceAndOnAStreamOfItsOwn) {
  const auto text = text_of(100);
  for (const std::int64_t copies : {0, 10}) {
    const MaskingOptions options{.copies = copies};
    const auto tokens = [&](Split split, std::uint32_t sample, std::int64_t epoch) {
      return mask(text, size, options, masking_stream(1, split, sample, epoch, options)).tokens;
    };
    EXPECT_EQ(tokens(Split::validation, 5, 7), tokens(Split::validation, 5, 0)) << "evaluations are comparable";
    EXPECT_NE(tokens(Split::validation, 5, 0), tokens(Split::validation, 6, 0));
    EXPECT_NE(tokens(Split::validation, 5, 0), tokens(Split::test, 5, 0));
    for (std::int64_t epoch = 0; epoch < 12; ++epoch)
      EXPECT_NE(tokens(Split::validation, 5, 0), tokens(Split::train, 5, epoch)) << epoch;
  }
}

}  // namespace
}  // namespace syncopate
