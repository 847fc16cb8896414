#include "results/rows/models_by_time.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

void ModelsByTime::add(OwnModel&& model) {
  OfWorker& of = of_[model.worker];
  of.reached = multiple_of(model.time);
  of.models.push_back(std::move(model));
}

std::optional<std::map<Rank, OwnModel>> ModelsByTime::take_first() {
  const Time due{next_ * every_};
  for (const Rank worker : Ranks(workers_)) {
    auto& [models, reached, has_ended] = of_[worker];
    while (!models.empty() && models.front().time < due) models.pop_front();
    if (!models.empty()) continue;
    if (has_ended) {
      is_over_ = true;
      take_all();
    }
    return std::nullopt;
  }
  std::map<Rank, OwnModel> first;
  Time latest{};
  for (const Rank worker : Ranks(workers_)) {
    const OwnModel& model = of_[worker].models.front();
    first.emplace(worker, model);
    latest = std::max(latest, model.time);
  }
  next_ = multiple_of(latest) + 1;
  return first;
}

std::vector<OwnModel> ModelsByTime::take_all() {
  std::vector<OwnModel> all;
  for (const Rank worker : Ranks(workers_))
    for (OwnModel& model : std::exchange(of_[worker].models, {})) all.push_back(std::move(model));
  return all;
}

}  // namespace syncopate
