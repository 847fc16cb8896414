// What can be named in an experiment file, for `syncopate list`, and what the program consists of, for
// `syncopate --version`.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace syncopate {

inline constexpr std::array<std::string_view, 6> listed_kinds = {"algorithms", "delays",   "networks",
                                                                 "models",     "datasets", "schedules"};

// Each row's name and sentence, in lines of a width to read; `kind` is one of listed_kinds, or empty for all of them.
std::string listing(std::string_view kind);

// A line per part: Syncopate, compiler, LibTorch, BLAS kernel, MPI, toml++, Boost.
std::string version_text();

}  // namespace syncopate
