// A small set of random texts of several lengths, for tests of models.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/data/text_dataset.hpp"

namespace syncopate {

// Texts of `shortest` to `longest` tokens: a first token, words, and a last token. Labels are independent of the texts.
inline std::shared_ptr<const Dataset> random_texts(std::int64_t vocabulary, std::int64_t classes, std::int64_t shortest,
                                                   std::int64_t longest, std::int64_t train, std::int64_t test) {
  const auto drawn = [&](std::uint64_t seed, std::int64_t count) {
    TokenSequences sequences;
    for (std::int64_t i = 0; i < count; ++i) {
      const RandomStream stream{.seed = seed, .step = i};
      std::vector<double> uniform(static_cast<std::size_t>(longest));
      stream.fill_uniform(0, uniform);
      const auto length = shortest + static_cast<std::int64_t>(uniform[0] * double(longest - shortest + 1));
      std::vector<std::int32_t> tokens{token_of(SpecialToken::first)};
      for (std::size_t j = 1; j + 1 < static_cast<std::size_t>(length); ++j)
        tokens.push_back(special_tokens + static_cast<std::int32_t>(uniform[j] * double(vocabulary - special_tokens)));
      tokens.push_back(token_of(SpecialToken::last));
      sequences.add(tokens, i * 7 % classes);
    }
    return sequences;
  };
  const DatasetSize size{.train = train,
                         .test = test,
                         .shape = {.width = longest, .vocabulary = vocabulary},
                         .classes = classes,
                         .marks = {.mask = token_of(SpecialToken::mask),
                                   .never_masked = {token_of(SpecialToken::first), token_of(SpecialToken::last)},
                                   .padding = token_of(SpecialToken::padding)},
                         .shortest = shortest};
  return make_token_dataset(size, drawn(1, train), drawn(2, test));
}

}  // namespace syncopate
