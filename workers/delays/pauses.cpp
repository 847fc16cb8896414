#include "workers/delays/pauses.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace syncopate {

Pauses::Pauses(std::uint64_t seed, double trailing_s, std::vector<std::shared_ptr<const DelayProcess>> sleeps,
               std::size_t first_stream)
    : seed_(seed), sleeps_(std::move(sleeps)), first_stream_(first_stream) {
  if (!std::isfinite(trailing_s) || trailing_s < 0)
    throw std::invalid_argument("trailing work must take at least 0 s, found " + std::to_string(trailing_s));
  if (first_stream_ + sleeps_.size() > std::numeric_limits<std::uint8_t>::max())
    throw std::invalid_argument("at most 255 delays compose");
  if (std::ranges::any_of(sleeps_, [](const auto& sleep) { return sleep == nullptr; }))
    throw std::invalid_argument("a sleep of the list is missing");
  trailing_ = from_seconds(trailing_s);
}

Duration Pauses::sleep(Rank worker, Step step, std::uint32_t index) const {
  double sleep_s = 0;
  for (std::size_t i = 0; i < sleeps_.size(); ++i) {
    const RandomStream stream{seed_, Purpose::delay, static_cast<std::uint8_t>(first_stream_ + i), worker, step};
    sleeps_[i]->add(stream, index, {&sleep_s, 1});
  }
  return from_seconds(std::max(sleep_s, 0.0));
}

}  // namespace syncopate
