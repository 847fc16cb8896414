// A key's description in words, for lists and pages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "workers/settings/key_description.hpp"

namespace syncopate {

// What stands behind the key's name: "a number above 0, in s".
std::string what_it_takes(const KeyDescription& key);

// "required", "default 0.9", "left out: all workers" or "may be left out".
std::string what_if_left_out(const KeyDescription& key);

// Its sentence, after the conditions under which the key exists: "With `rule = "power"`: ...". Keys are named without
// `prefix`; `given` is a key whose words go without saying.
std::string what_it_means(const KeyDescription& key, std::string_view prefix, std::string_view given = {});

// What each of its words means, of those that have a sentence: "\"carry-over\": dropped micro-batches come ...".
std::vector<std::string> what_its_words_mean(const KeyDescription& key);

}  // namespace syncopate
