// Whether the first steps of a run, which are simulated, stand for the rest of it: by what the method's schedule alone
// lets it communicate, whatever clocks and budgets do.
// Units:   steps of the experiment file.
// Checks:  closed forms of scheduled periods (tests/experiments/first_steps_test.cpp).
#pragma once

#include <optional>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

// What a run of so many steps communicates in which nobody leaves or loses anything; none where clocks or values have a
// say in it, or the model's tensors are needed and not known.
std::optional<Communicated> scheduled_communication(const Run& run, Step steps);

// The last step within [at_least, at_most] at which a round ends, or else the first one after them and up to `limit`:
// a round that is cut off takes other time than whole ones. at_most, where there is none, or rounds are not known.
Step end_of_round(const Run& run, Step at_least, Step at_most, Step limit);

// Whether a run of `all` steps has the rounds and the bytes that it would have if all went on as between the step
// `settled`, after which methods keep their pace, and the step `first`. True where they are not known.
bool first_steps_stand_for_all(const Run& run, Step settled, Step first, Step all);

}  // namespace syncopate
