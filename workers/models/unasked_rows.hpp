// Sequences that a task asks for nothing: no label but -100, no token that may be hidden, no next token; of their own,
// or of what `longest` leaves of them. In a micro-batch's mean each would count as a loss of 0, and a micro-batch of
// such rows alone would divide a step's gradient by too much.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "workers/datasets/dataset.hpp"
#include "workers/models/text_task.hpp"

namespace syncopate {

// Some rows, the first of which is named as its file numbers it.
struct UnaskedRows {
  Split split = Split::train;
  std::uint32_t first = 0;
  std::int64_t others = 0;  // in both splits

  std::string text() const;  // "row 2 of the training set and 3 others"
};

struct UnaskedByTask {
  std::optional<UnaskedRows> whole;  // that are asked for nothing however long they are shown
  std::optional<UnaskedRows> cut;    // that would be asked for something if they were not cut
  std::int64_t longest = 0;          // the least that leaves all but the first kind something
};

// Whether there may be such rows, as far as the size says: looking at them takes the data set's contents.
bool may_leave_unasked(const DatasetSize& data, const TextTask& task);

// Of the training and the test set as the files have them. `task` is none of classes.
UnaskedByTask unasked_rows(const Dataset& dataset, const TextTask& task);

}  // namespace syncopate
