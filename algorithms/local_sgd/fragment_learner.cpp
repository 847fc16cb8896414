#include "algorithms/local_sgd/fragment_learner.hpp"

#include "workers/lost_with_state.hpp"

namespace syncopate {

FragmentLearner::FragmentLearner(Worker& worker, int fragments, Step minimum_steps, bool subtracts)
    : worker_(worker), server_{worker.size()}, minimum_steps_(minimum_steps), progress_(fragments) {
  if (subtracts) base_ = worker.model();
}

void FragmentLearner::discard(const Work& lost) {
  if (lost.micro_batches > 0) worker_.discard(Gradient(nullptr, lost.micro_batches, lost.time));
}

void FragmentLearner::begin_anew() {
  discard(progress_.receive_all());
  worker_.set_model(worker_.model(), StatePolicy::reset);
  if (base_) base_ = worker_.model();
  open_.reset();
}

void FragmentLearner::take_local_step() {
  LostWithState<bool> has_state(worker_, true);
  const Gradient gradient = worker_.compute_step_gradient(Samples::in_turn);
  const bool had_state = *has_state;
  if (!had_state) begin_anew();
  worker_.descend(gradient / worker_.micro_batches());
  progress_.add_step({.micro_batches = gradient.micro_batches(), .time = gradient.compute_time()});
  if (!had_state) worker_.send(server_, Message::note(worker_.step()));
}

void FragmentLearner::take_up_fragments() {
  while (const auto news = worker_.receive({.from = server_, .until = worker_.now()})) {
    if (!news->numbers.empty()) open_ = OpenRound::from(news->numbers);
    if (!news->has_model()) continue;
    worker_.take_up(*news);
    if (base_) base_ = worker_.with_slice(base_, news->model, news->slice);
    discard(progress_.receive(news->slice.index));
    if (open_) sync_s_ = to_seconds(worker_.now() - open_->last_ended);
  }
}

void FragmentLearner::answer_if_due() {
  if (!open_ || worker_.now() < open_->begins) return;
  const Slice fragment = open_->fragment(progress_.fragments());
  if (progress_.steps(fragment.index) < minimum_steps_) return;
  worker_.send(server_, answer_of(fragment.index).message(*open_, fragment));
  open_.reset();
}

FragmentAnswer FragmentLearner::answer_of(int fragment) {
  const ModelStatePtr mine = worker_.model();
  return {.model = base_ ? worker_.combine({{1, base_}, {-1, mine}}, mine) : mine,
          .work = progress_.tell(),
          .micro_batches = progress_.micro_batches(fragment),
          .steps = progress_.steps(fragment),
          .sync_s = sync_s_};
}

}  // namespace syncopate
