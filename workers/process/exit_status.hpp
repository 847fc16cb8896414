// With what the program ends.
#pragma once

namespace syncopate {

inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;        // something failed while running
inline constexpr int exit_usage = 2;          // wrong usage, configuration or data: nothing was run
inline constexpr int exit_interrupted = 130;  // as shells say of SIGINT

}  // namespace syncopate
