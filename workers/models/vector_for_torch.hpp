// Included before everything else where clang 14 is to say what it thinks of files with LibTorch's headers
// (SYNCOPATE_LINT, CMakeLists.txt). Those have vectors of types that are not complete yet, whose members this
// clang instantiates at once where they are constexpr, as they are in C++20 with GCC's library. Nothing is linked.
#pragma once

#include <string>  // all of the library that vectors need, with its constexpr

#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_a1_without_constexpr  // declared with it by <string>
#include <vector>
#undef __fill_a1
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")
