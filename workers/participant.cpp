#include "workers/participant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "workers/compression/compressed_messages.hpp"
#include "workers/training/norm_preserving_mean.hpp"

namespace syncopate {

Participant::Participant(const RunContext& context, Rank rank)
    : context_(context), rank_(rank), size_(context.cluster.workers()), model_(context.initial_model) {
  if (context.average && is_heard()) average_ = std::make_unique<MovingAverage>(*context.average, model());
  if (!context.message_compressors.empty() && rank.value < size_)
    compressed_messages_ = std::make_unique<CompressedMessages>(context.message_compressors, context.training, rank);
}

Participant::~Participant() = default;

void Participant::hear(Message& from_server) { compressed_messages_->hear(from_server); }

Step Participant::file_step(Step ahead) const {
  const Step planned = step_ + ahead - added_steps_;
  if (steps_per_file_step_ == 1) return planned;
  // The small addend keeps a whole number whole that the division has left just below.
  return Step{static_cast<Step::Rep>(std::floor(static_cast<double>(planned.value()) / steps_per_file_step_ + 1e-9))};
}

void Participant::follow(const LearningRate& learning_rate, Step from) {
  own_schedule_ = std::make_unique<const OwnSchedule>(OwnSchedule{learning_rate, from});
  if (step_ == Step{0} && is_heard()) context_.observer->on_first_rate(this->learning_rate());
}

void Participant::scale_rate(double factor) {
  const bool is_first = step_ == Step{0} && factor != rate_factor_;
  rate_factor_ = factor;
  if (is_first && is_heard()) context_.observer->on_first_rate(factor * learning_rate());
}

double Participant::learning_rate(Step ahead) const {
  const Step step = file_step(ahead);
  if (own_schedule_ && step >= own_schedule_->from) return own_schedule_->learning_rate.at(step - own_schedule_->from);
  if (schedule_stretch_ == 1) return context_.learning_rate.at(step);
  const double position = static_cast<double>(step.value()) / schedule_stretch_;
  return context_.learning_rate.at(Step{static_cast<Step::Rep>(position)});
}

bool Participant::budget_left(Judged judged) const {
  if (judged != Judged::by_others && taken_ >= data_) return false;
  if (judged == Judged::alone) return budget_left_at(now());
  const Budget& budget = context_.budget;
  if (judged == Judged::by_server) return !budget.seconds || to_seconds(now()) < *budget.seconds;
  if (budget.steps && file_step() >= *budget.steps + extra_steps_) return false;
  if (!budget.seconds && !budget.samples && !budget.bytes) return true;
  const AgreedProgress agreed = agreed_.value_or(
      AgreedProgress{.time = now(), .micro_batches = kept_total_, .bytes = context_.cluster.bytes_sent()});
  if (budget.seconds && to_seconds(agreed.time) >= *budget.seconds) return false;
  if (budget.samples && agreed.micro_batches * context_.samples_per_micro_batch >= *budget.samples) return false;
  return !(budget.bytes && agreed.bytes >= *budget.bytes);
}

bool Participant::budget_left_at(Time time) const {
  const Budget& budget = context_.budget;
  if (budget.steps && file_step() >= *budget.steps + extra_steps_) return false;
  if (budget.seconds && to_seconds(time) >= *budget.seconds) return false;
  if (!budget.samples) return true;
  const std::int64_t others = agreed_ ? agreed_->micro_batches : 0;
  return (others + size_ * since_sync_.kept) * context_.samples_per_micro_batch < *budget.samples;
}

Step Participant::steps_left() const {
  if (!context_.budget.steps) return Step{std::numeric_limits<Step::Rep>::max() / 2};
  return std::max(Step{0}, *context_.budget.steps + extra_steps_ - file_step());
}

// Without moments, where there are some: what a method keeps of a model must not hold them, so that the optimizer may
// go on in place.
ModelStatePtr Participant::model() const {
  const auto is_empty = [](const Moment& moment) { return moment == Moment(); };
  if (!model_ || std::ranges::all_of(model_->moments, is_empty)) return model_;
  auto state = std::make_shared<ModelState>(*model_);
  state->moments = {};
  return state;
}

void Participant::set_model(const ModelStatePtr& model, StatePolicy moments) {
  set_model(model);
  const AveragePolicy policy{.moments = {moments, moments}, .buffers = StatePolicy::keep};
  model_ = context_.training.average({&model_, 1}, policy).front();  // of one model: itself
}

ModelStatePtr Participant::norm_preserving_mean(const std::vector<WeightedState>& differences, Slice slice,
                                                OfEmbeddings embeddings) const {
  return syncopate::norm_preserving_mean(context_.training, differences, slice, embeddings);
}

double Participant::norm(Gradient& gradient) const {
  if (!context_.training.time_only()) gradient = context_.training.share(gradient);
  return context_.training.norm(gradient);
}

double Participant::loss(Gradient& gradient) const {
  if (!context_.training.time_only()) gradient = context_.training.share(gradient);
  return context_.training.loss(gradient);
}

double Participant::uniform(Step step, Drawn drawn) const {
  const bool is_own = drawn == Drawn::alone;
  return RandomStream{.seed = context_.seed,
                      .purpose = Purpose::algorithm,
                      .stream = static_cast<std::uint8_t>(is_own ? 0 : 1),
                      .worker = is_own ? rank_ : Rank{},
                      .step = step}
      .uniform(0);
}

void Participant::take_step(const Gradient& gradient, const StepOptions& options, Clipping clipping, Slice slice) {
  if (!options.is_planned) ++added_steps_;
  if (model_) {
    const double rate = options.rate_factor * learning_rate() * options.weight;
    const Training::StepRules rules{.slice = slice, .keeps_second = options.keeps_second_moment, .clipping = clipping};
    const Step after = file_step() + 1;
    if (is_heard() && slice.count == 1 && context_.observer->wants_step_gradient(after)) {
      const Gradient shared = context_.training.share(gradient);
      context_.observer->on_step_gradient(after, now(), shared);
      model_ = context_.training.descend(std::move(model_), shared, rate, rules);
    } else {
      model_ = context_.training.descend(std::move(model_), gradient, rate, rules);
    }
  }
  ++step_;
  const bool is_worker = rank_.value < size_;
  if (model_ && is_worker && context_.observer && context_.observer->wants_worker_models(file_step()))
    context_.observer->on_worker_model({.worker = rank_, .model = model(), .step = file_step(), .time = now()});
}

void Participant::send(Rank to, Message&& message, Here at) {
  if (compressed_messages_) compressed_messages_->compress(to, message);
  context_.cluster.send(rank_, to, std::move(message), {"send", at});
}

void Participant::publish(Publication publication) {
  if (!is_heard()) return;
  if (average_ && publication.ensemble.empty() && publication.own.models.empty()) {
    if (publication.model == model_) publication.model = model();
    publication.model = average_->take_in(publication.model, context_.training);
  }
  publication.step = std::max(publication.step, file_step());
  publication.surplus_steps = static_cast<double>(surplus_) / micro_batches();
  publication.time = now();
  publication.samples = (agreed_ ? agreed_->micro_batches : kept_total_) * context_.samples_per_micro_batch;
  publication.bytes = agreed_ ? agreed_->bytes : context_.cluster.bytes_sent();
  publication.learning_rate = rate_factor_ * learning_rate();
  context_.observer->on_publish(publication);
}

ModelStatePtr Participant::publish(OwnModel said) {
  said.model = model();
  if (context_.average) {
    if (!average_) average_ = std::make_unique<MovingAverage>(*context_.average, context_.initial_model);
    said.model = average_->take_in(said.model, context_.training);
  }
  ModelStatePtr evaluated = said.model;
  if (!context_.observer || !budget_left() || !context_.observer->wants_own_models(file_step())) return evaluated;
  said.worker = rank_;
  said.step = file_step();
  said.time = now();
  said.samples = kept_total_ * context_.samples_per_micro_batch;
  said.bytes = context_.cluster.bytes_sent();
  said.learning_rate = learning_rate();
  context_.observer->on_own_model(std::move(said));
  return evaluated;
}

void Participant::fail(const std::string& why) const {
  throw RunFailure(fmt::format("at {:.6f} s: {}", to_seconds(now()), why));
}

}  // namespace syncopate
