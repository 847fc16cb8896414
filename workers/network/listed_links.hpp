// Links between workers that a file lists, for methods in which each has neighbours.
#pragma once

#include <optional>
#include <vector>

#include "workers/settings/settings.hpp"

namespace syncopate {

// What goes from one worker to another, with the part that it is of what the first one has.
struct WeightedLink {
  int from = 0;
  int to = 0;
  double weight = 0;
};

struct ListedLinks {
  bool have_weights = false;
  bool go_one_way = false;
};

// Reads the keys `file` and `file_hash` of the table and the file: the columns from and to, ranks from 0, and weight
// where there are weights. Of links that go both ways each line is two. No pair stands twice, and nobody is linked
// with itself. Nothing after a fault.
std::optional<std::vector<WeightedLink>> read_listed_links(Settings& table, int workers, const ListedLinks& what);

}  // namespace syncopate
