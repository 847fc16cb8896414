#include "workers/cluster/calls.hpp"

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
          .slice = averaging.slice,
          .rest_is_needed = averaging.rest_is_needed,
          .from = averaging.from};
}

Collective Collective::broadcast(ModelStatePtr model, Rank root) {
  return {.kind = Kind::broadcast, .model = std::move(model), .root = root};
}

Collective Collective::all_gather(std::span<const double> numbers) {
  return {.kind = Kind::all_gather, .numbers = {numbers.begin(), numbers.end()}};
}

Collective::Kind Collective::first_exchange(Operation operation) {
  if (operation == Operation::broadcast) return Kind::broadcast_packet;
  return operation == Operation::all_to_all ? Kind::exchange_chunks : Kind::sum_first_packets;
}

Collective::Kind Collective::last_exchange(Operation operation) {
  return operation == Operation::all_gather ? Kind::gather_packets : Kind::sum_packets;
}

Collective::Kind Collective::last_of_average(Operation operation) {
  return operation == Operation::all_gather ? Kind::gather_differences : Kind::sum_differences;
}

Bytes payload_of(const Collective& collective, const Training& training, int members) {
  const auto numbers = static_cast<Bytes::Rep>(collective.numbers.size());
  const Bytes parameters = training.parameter_bytes();
  switch (collective.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::partial_all_reduce:
      return collective.slice.bytes_of(parameters) + Bytes{4 * numbers};
    case Collective::Kind::average: {  // what is averaged besides goes with the first slice
      const Bytes all{static_cast<Bytes::Rep>(4 * training.averaged_size(collective.policy))};
      return collective.slice.bytes_of(parameters) + (collective.slice.index == 0 ? all - parameters : Bytes{});
    }
    case Collective::Kind::broadcast:
      return parameters;
    case Collective::Kind::sum_packets:
    case Collective::Kind::sum_first_packets:
    case Collective::Kind::sum_differences:
    case Collective::Kind::broadcast_packet:
    case Collective::Kind::exchange_chunks:
      return collective.packet.size + Bytes{4 * numbers};
    case Collective::Kind::gather_packets:
    case Collective::Kind::gather_differences:
      if (collective.all_packets > Bytes{}) return collective.all_packets + Bytes{4 * members * numbers};
      return Bytes{members * (collective.packet.size.value() + 4 * numbers)};
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
  if (terms.kind == Kind::broadcast || terms.kind == Kind::broadcast_packet)
    text += fmt::format(" from worker {}", terms.root.value);
  const auto& [moments, buffers, parameters] = terms.policy;
  if (terms.kind == Kind::average)
    text += fmt::format(" (policy {}{}{}{})", static_cast<int>(moments[0]), static_cast<int>(moments[1]),
                        static_cast<int>(buffers), static_cast<int>(parameters));
  if (terms.numbers > 0) text += fmt::format(" with {} numbers", terms.numbers);
  if (terms.slice.count > 1) text += fmt::format(" of slice {} of {}", terms.slice.index, terms.slice.count);
  return text;
}

Members members_of(const Collective& collective, Rank self, int workers) {
  if (!collective.group_size) return {Rank{0}, workers};
  const int size = *collective.group_size, first = self.value / size * size;
  return {Rank{first}, std::min(size, workers - first)};
}

std::string Servers::name_of(Rank server, int workers) const {
  const int index = server.value - workers;
  if (count == 1) return "the server";
  if (regions == 0) return fmt::format("server {}", index);
  return index == 0 ? "the global server" : fmt::format("the server of region {}", index - 1);
}

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace syncopate
