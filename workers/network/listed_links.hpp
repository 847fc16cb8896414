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

enum class ListedWeights { refused, read, passed_over };

struct ListedLinks {
  ListedWeights weights = ListedWeights::refused;
  bool go_one_way = false;
};

// Reads the keys `file` and `file_hash` of the table and the file: the columns from and to, ranks from 0, and weight
// where weights are read; where they are refused, a column of them is a fault. Of links that go both ways each line is
// two. No pair stands twice, and nobody is linked with itself. Nothing after a fault.
std::optional<std::vector<WeightedLink>> read_listed_links(Settings& table, int workers, const ListedLinks& what);

}  // namespace syncopate
