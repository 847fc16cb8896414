// What an experiment file may say: the keys of all its tables, as their readers describe them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "workers/settings/key_description.hpp"

namespace syncopate {

// `fixed`: words that stand in the file, such as {"methods.algorithm", "dropcompute"}. Found once for each such map:
// the readers do not change while the program runs.
const std::vector<KeyDescription>& keys_of_file(const std::map<std::string, std::string>& fixed);
const std::vector<KeyDescription>& keys_of_file();  // whatever words stand in it

}  // namespace syncopate
