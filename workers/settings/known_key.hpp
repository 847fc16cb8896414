// A key of an experiment file that somebody asked for, be it written or not.
#pragma once

#include <string>
#include <vector>

namespace syncopate {

struct KnownKey {
  std::string path;                  // as in an override: "delays.0.scale"; of a table that is not there, its own
  std::vector<std::string> choices;  // the words that it takes, where it takes one of several
};

}  // namespace syncopate
