#include "results/rows/own_models.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

void ModelsByStep::add(OwnModel&& model) {
  const Rank worker = model.worker;
  open_[model.step].insert_or_assign(worker, std::move(model));
}

std::optional<std::map<Rank, OwnModel>> ModelsByStep::take_first(bool at_the_end) {
  if (open_.empty()) return std::nullopt;
  const auto& models = open_.begin()->second;
  const auto is_missing = [&](Rank worker) { return !models.contains(worker) && !ended_.contains(worker); };
  for (int worker = 0; worker < workers_ && !at_the_end; ++worker)
    if (is_missing(Rank{worker})) return std::nullopt;
  return std::move(open_.extract(open_.begin()).mapped());
}

Publication as_publication(const std::map<Rank, OwnModel>& models) {
  Publication publication;
  for (const auto& [worker, own] : models) {
    if (own.model) publication.own.models.push_back({own.weight, own.model});
    publication.own.evaluated = own.evaluated;
    publication.step = std::max(publication.step, own.step);
    if (own.time < publication.time) continue;
    publication.time = own.time;
    publication.samples = own.samples;
    publication.bytes = own.bytes;
    publication.learning_rate = own.learning_rate;
  }
  return publication;
}

}  // namespace syncopate
