#include "workers/training/model_state.hpp"

#include <atomic>

namespace syncopate {

std::uint64_t new_state_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace syncopate
