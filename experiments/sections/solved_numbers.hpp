// Numbers of a method that were solved for (algorithms/local_sgd/asked_rounds.hpp), as its resolved table has them: the
// number, and beside it `solved_for`.
#pragma once

#include <string>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Of an entry of [[methods]], as a line for readers: "period.coefficient = 0.0627 makes 470 rounds", and what was asked
// for where that is another number. Empty where nothing was solved for.
std::string solved_note(const TomlNode& method);

// As it was asked for, { rounds = 470 }, in all methods of the document: for an experiment whose runs solve for it
// anew, each over its own steps and rates.
TomlNode with_numbers_as_asked(TomlNode document);

}  // namespace syncopate
