#include "workers/cluster/cluster.hpp"

#include <fmt/format.h>

namespace syncopate {

Gradient Cluster::compute_gradients(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count) {
  Gradient sum;
  for (MicroBatch next = first; next.index < first.index + count; ++next.index)
    sum += *compute_gradient(self, at, next, next, {});
  return sum;
}

AgreedProgress Cluster::all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                       const Contribution& contribution, Place place) {
  CollectiveResult result = perform(self, Collective::all_reduce(std::move(gradient), numbers), contribution, place);
  gradient = std::move(result.gradient);
  if (result.numbers) std::ranges::copy(*result.numbers, numbers.begin());
  return result.agreement;
}

std::string short_path(std::string_view path) {
  if (const auto methods = path.rfind("/algorithms/"); methods != path.npos)
    return std::string(path.substr(methods + 1));
  const auto file = path.rfind('/');
  const auto folder = file == path.npos || file == 0 ? path.npos : path.rfind('/', file - 1);
  return std::string(folder == path.npos ? path : path.substr(folder + 1));
}

std::string what_it_waits_for(const Place* place, const std::string& from) {
  if (!place) return "ended";
  return fmt::format("waiting in {}{}{} ({}:{})", place->operation, from.empty() ? "" : " for ", from,
                     short_path(place->at.file_name()), place->at.line());
}

std::string explain(const Deadlock& deadlock) {
  std::string text = fmt::format("deadlock at {:.6f} s: no participant can continue", to_seconds(deadlock.at));
  constexpr double years = to_seconds(longest_duration) / (365.25 * 24 * 3600);
  if (deadlock.after_loss)
    text = fmt::format(
        "no participant can continue after {:.6f} s: a micro-batch that takes more than {:.0f} years "
        "never ends",
        to_seconds(deadlock.at), years);
  for (const auto& [state, ranks] : deadlock.workers_by_state)
    text += fmt::format("\n  worker{} {}: {}", ranks.size() > 1 ? "s" : "", rank_ranges(ranks), state);
  for (const auto& [name, state] : deadlock.servers) text += fmt::format("\n  {}: {}", name, state);
  return text;
}

std::string explain_end_of_clock(std::string_view who) {
  return fmt::format("the virtual time of {} exceeds the clock's range of {:.0f} s (292 years)", who,
                     to_seconds(never));
}

}  // namespace syncopate
