// Why a run failed, in a table's cell: the beginning of a reason, which may be long, and the whole of it below the
// table.
#pragma once

#include <string>

namespace syncopate {

// What happened: a reason's first line. It may have more (a deadlock names every worker).
std::string first_line(const std::string& reason);

// The first line, if it is no longer than about 60 columns; else its beginning up to the end of a clause or word, and
// "...".
std::string short_reason(const std::string& reason);

// The whole first line as a line of its own, headed by whose it is; empty where the short one is all of it.
std::string note_of_reason(const std::string& whose, const std::string& reason);

}  // namespace syncopate
