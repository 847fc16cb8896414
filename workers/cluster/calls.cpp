#include "workers/cluster/calls.hpp"

#include <fmt/format.h>

namespace syncopate {

Bytes payload_of(const Collective& collective, const Training& training, int members) {
  using Kind = Collective::Kind;
  const Bytes numbers{4 * static_cast<Bytes::Rep>(collective.numbers.size())};
  if (collective.kind == Kind::barrier) return {};
  if (collective.kind == Kind::all_gather) return numbers + numbers;  // in double precision
  if (collective.gathers_packets()) {
    if (collective.all_packets > Bytes{}) return collective.all_packets + Bytes{members * numbers.value()};
    return Bytes{members * (collective.packet.size + numbers).value()};
  }
  if (collective.is_exchange()) return collective.packet.size + numbers;
  const Bytes parameters = training.parameter_bytes(), of_slice = collective.slice.bytes_of(parameters);
  if (collective.kind != Kind::average) return of_slice + numbers;
  const Bytes all{static_cast<Bytes::Rep>(4 * training.averaged_size(collective.policy))};
  return collective.slice.index == 0 ? of_slice + (all - parameters) : of_slice;  // slice 0 has all other values, too
}

std::string describe(const Collective::Terms& terms) {
  using Kind = Collective::Kind;
  std::string text = properties_of(terms.kind).name;
  if (terms.kind == Kind::broadcast_packet) text += fmt::format(" from worker {}", terms.root.value);
  if (terms.policy != AveragePolicy()) {
    constexpr const char* names[] = {"keep", "average", "reset"};
    const auto name = [&](StatePolicy policy) { return names[static_cast<int>(policy)]; };
    const auto& [moments, buffers, parameters] = terms.policy;
    text += fmt::format(" (moments: {}, {}, {}; buffers: {}; parameters: {})", name(moments[0]), name(moments[1]),
                        name(moments[2]), name(buffers), name(parameters));
  }
  if (terms.numbers > 0) text += fmt::format(" with {} numbers", terms.numbers);
  if (terms.slice.count > 1) text += fmt::format(" of slice {} of {}", terms.slice.index, terms.slice.count);
  return text;
}

Members members_of(const Collective& collective, Rank self, int workers) {
  if (!collective.group_size) return {Rank{0}, workers};
  const int size = *collective.group_size, first = self.value / size * size;
  return {Rank{first}, std::min(size, workers - first)};
}

std::string Servers::name_of(Rank rank, int workers) const {
  const int index = rank.value - workers;
  if (index < 0) return fmt::format("worker {}", rank.value);
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
