#include "workers/cluster/collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace syncopate {

Collective Collective::all_reduce(Gradient gradient, std::span<const double> numbers, Slice slice) {
  return {.kind = Kind::all_reduce,
          .gradient = std::move(gradient),
          .numbers = {numbers.begin(), numbers.end()},
          .slice = slice};
}

Collective Collective::partial_all_reduce(Gradient gradient, const Activation& activation, LateGradient late) {
  return {.kind = Kind::partial_all_reduce, .gradient = std::move(gradient), .activation = activation, .late = late};
}

Collective Collective::average(ModelStatePtr model, const Averaging& averaging) {
  return {.kind = Kind::average,
          .model = std::move(model),
          .policy = averaging.policy,
          .weight = averaging.weight,
          .group_size = averaging.group_size,
          .slice = averaging.slice};
}

Collective Collective::broadcast(ModelStatePtr model, Rank root) {
  return {.kind = Kind::broadcast, .model = std::move(model), .root = root};
}

Collective Collective::all_gather(std::span<const double> numbers) {
  return {.kind = Kind::all_gather, .numbers = {numbers.begin(), numbers.end()}};
}

namespace {

// A slice of the parameters; what is moved besides goes with the first one.
Bytes bytes_of(std::int64_t floats, std::int64_t parameters, Slice slice) {
  const std::int64_t besides = slice.index == 0 ? floats - parameters : 0;
  return Bytes{4 * (slice.end(parameters) - slice.begin(parameters) + besides)};
}

}  // namespace

Bytes payload_of(const Collective& collective, const Training& training) {
  const auto numbers = static_cast<Bytes::Rep>(collective.numbers.size());
  const Bytes::Rep parameters = training.parameter_bytes().value() / 4;
  switch (collective.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::partial_all_reduce:
      return bytes_of(parameters, parameters, collective.slice) + Bytes{4 * numbers};
    case Collective::Kind::average:
      return bytes_of(static_cast<std::int64_t>(training.averaged_size(collective.policy)), parameters,
                      collective.slice);
    case Collective::Kind::broadcast:
      return training.parameter_bytes();
    case Collective::Kind::all_gather:
      return Bytes{8 * numbers};
    case Collective::Kind::barrier:
      break;
  }
  return {};
}

std::string describe(const Collective::Terms& terms) {
  using Kind = Collective::Kind;
  std::string text = properties_of(terms.kind).name;
  if (terms.kind == Kind::broadcast) text += fmt::format(" from worker {}", terms.root.value);
  const auto& [moments, buffers] = terms.policy;
  if (terms.kind == Kind::average)
    text += fmt::format(" (policy {}{}{})", static_cast<int>(moments[0]), static_cast<int>(moments[1]),
                        static_cast<int>(buffers));
  if (terms.numbers > 0) text += fmt::format(" with {} numbers", terms.numbers);
  if (terms.slice.count > 1) text += fmt::format(" of slice {} of {}", terms.slice.index, terms.slice.count);
  return text;
}

Members members_of(const Collective& collective, Rank self, int workers) {
  if (!collective.group_size) return {Rank{0}, workers};
  const int size = *collective.group_size, first = self.value / size * size;
  return {Rank{first}, std::min(size, workers - first)};
}

}  // namespace syncopate
