// Texts with labels, as they are read: what a data set of tokens is made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

struct LabelledText {
  std::string text;
  std::int32_t label = 0;  // below the number of categories
};

struct Corpus {
  std::vector<LabelledText> texts;
  std::vector<std::string> categories;  // by label; one where there are no labels
  std::int64_t left_out = 0;            // lines that are not empty and have no word
};

// Whether a text is held out, by a hash of what it says: equal texts are on one side, and a corpus that grows keeps its
// split. `test_share` of all texts are in the test set, on average.
Split split_of(std::string_view text, double test_share);

}  // namespace syncopate
