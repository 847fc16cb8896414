#include "algorithms/gradient_coding/gradient_code.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

namespace syncopate {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

Answers::Answers(const GradientCode& code)
    : code_(code), has_group_(at(code.groups)), has_part_(at(code.parts.size())) {}

int Answers::possible(const Server& server) const {
  std::vector<char> can_come = has_group_;
  for (const Rank worker : Ranks(code_.parts.size()))
    if (!code_.parts[worker].empty() && !server.has_left(worker)) can_come[at(code_.group[worker])] = 1;
  return static_cast<int>(std::ranges::count(can_come, 1));
}

int Answers::copies_from(Rank worker) const {
  const auto is_here = [&](const GradientCode::Part& part) { return has_part_[at(part.number)] != 0; };
  return static_cast<int>(std::ranges::count_if(code_.parts[worker], is_here));
}

void Answers::take(Rank worker, Gradient message) {
  for (const auto& part : code_.parts[worker]) parts_ += 1 - std::exchange(has_part_[at(part.number)], 1);
  has_group_[at(code_.group[worker])] = 1;
  from_.push_back(worker);
  messages_.push_back(std::move(message));
}

Gradient Answers::decode() const {
  const std::vector<double> weights = code_.decode(from_);
  Gradient sum;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += messages_[i] * weights[i];
  if (code_.merges) sum.use_double_precision();
  return sum;
}

GradientCode code_of_single_workers(int workers, int needed) {
  GradientCode code{.parts = ByRank<std::vector<GradientCode::Part>>(workers), .group = ByRank<int>(workers)};
  code.groups = workers;
  code.needed = needed;
  for (const Rank worker : Ranks(workers)) code.group[worker] = worker.value;
  return code;
}

}  // namespace syncopate
