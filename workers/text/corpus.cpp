#define XXH_INLINE_ALL
#include "workers/text/corpus.hpp"

#include <xxhash.h>

namespace syncopate {

Split split_of(std::string_view text, double test_share) {
  constexpr double hashes = 18446744073709551616.0;  // 2^64
  return static_cast<double>(XXH3_64bits(text.data(), text.size())) < test_share * hashes ? Split::test : Split::train;
}

}  // namespace syncopate
