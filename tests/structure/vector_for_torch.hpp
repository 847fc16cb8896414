// Included before all other headers when clang 14 checks files with LibTorch's headers (SYNCOPATE_LINT,
// CMakeLists.txt). LibTorch's headers have vectors of incomplete types. In C++20 with GCC's library the members of
// vectors are constexpr, and clang 14 then instantiates them at once. The checked files are not linked.
#pragma once

#include <string>  // declares everything in the library that vectors need, with its constexpr

#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_a1_without_constexpr  // <string> declares it too
#include <vector>
#undef __fill_a1
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")
