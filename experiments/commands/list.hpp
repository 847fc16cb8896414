// What can be named in an experiment file, for `syncopate list`, and what the program consists of, for
// `syncopate --version`.
#pragma once

#include <string>
#include <string_view>

namespace syncopate {

// Each row's name and sentence, in lines of a width to read; `kind` is one of listed_kinds, or empty for all of them.
std::string listing(std::string_view kind);

// What a name of an experiment file stands for, with all its keys; or a key, or a kind as above. Of another word, all
// names and keys whose sentences have it. Empty: there are none, and unlisted() says so.
std::string listing_of(std::string_view name);
std::string unlisted(std::string_view name);

// A line per part: Syncopate, compiler, LibTorch, BLAS kernel, MPI, toml++, Boost.
std::string version_text();

}  // namespace syncopate
