#include "workers/participant.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace syncopate {

Participant::Participant(const RunContext& context, Rank rank)
    : context_(context), rank_(rank), size_(context.cluster.workers()), model_(context.initial_model) {}

Step Participant::file_step() const {
  const Step planned = step_ - added_steps_;
  if (steps_per_file_step_ == 1) return planned;
  // The small addend keeps a whole number whole that the division has left just below.
  return Step{static_cast<Step::Rep>(std::floor(static_cast<double>(planned.value()) / steps_per_file_step_ + 1e-9))};
}

double Participant::learning_rate() const {
  if (schedule_stretch_ == 1) return rate_factor_ * context_.learning_rate.at(file_step());
  const double position = static_cast<double>(file_step().value()) / schedule_stretch_;
  return rate_factor_ * context_.learning_rate.at(Step{static_cast<Step::Rep>(position)});
}

void Participant::extend_budget(Step extra, bool stretch) {
  if (!context_.budget.steps) return;
  extra_steps_ += extra;
  const auto planned = static_cast<double>(context_.budget.steps->value());
  if (stretch && planned > 0) schedule_stretch_ = (planned + static_cast<double>(extra_steps_.value())) / planned;
}

bool Participant::budget_left() const {
  const Budget& budget = context_.budget;
  if (budget.steps && file_step() >= *budget.steps + extra_steps_) return false;
  if (!budget.seconds && !budget.samples && !budget.bytes) return true;
  const AgreedProgress agreed = agreed_.value_or(
      AgreedProgress{.time = now(), .micro_batches = kept_total_, .bytes = context_.cluster.bytes_sent()});
  if (budget.seconds && to_seconds(agreed.time) >= *budget.seconds) return false;
  if (budget.samples && agreed.micro_batches * context_.samples_per_micro_batch >= *budget.samples) return false;
  return !(budget.bytes && agreed.bytes >= *budget.bytes);
}

Step Participant::steps_left() const {
  if (!context_.budget.steps) return Step{std::numeric_limits<Step::Rep>::max() / 2};
  return std::max(Step{0}, *context_.budget.steps + extra_steps_ - file_step());
}

double Participant::uniform(Step step, std::uint32_t index) const {
  return RandomStream{.seed = context_.seed, .purpose = Purpose::algorithm, .stream = 0, .worker = rank_, .step = step}
      .uniform(index);
}

double Participant::shared_uniform(Step step, std::uint32_t index) const {
  return RandomStream{.seed = context_.seed, .purpose = Purpose::algorithm, .stream = 1, .worker = {}, .step = step}
      .uniform(index);
}

void Participant::descend(const Gradient& gradient) {
  if (model_) model_ = context_.training.descend(std::move(model_), gradient, learning_rate());
  ++step_;
}

void Participant::publish(Publication publication) {
  if (!context_.observer) return;
  const bool is_global = rank_ == Rank{0} || rank_ == context_.cluster.server();
  if (!is_global) return;
  publication.step = file_step();
  publication.time = now();
  publication.samples = (agreed_ ? agreed_->micro_batches : kept_total_) * context_.samples_per_micro_batch;
  publication.bytes = agreed_ ? agreed_->bytes : context_.cluster.bytes_sent();
  publication.learning_rate = learning_rate();
  context_.observer->on_publish(publication);
}

}  // namespace syncopate
