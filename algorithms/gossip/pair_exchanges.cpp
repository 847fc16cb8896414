#include "algorithms/gossip/pair_exchanges.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

// A worker that loses its state goes on with what it has taken up.
ModelStatePtr& PairExchanges::mixed() {
  ModelStatePtr& mixed = *mixed_;
  if (!mixed) mixed = worker_.model();
  return mixed;
}

void PairExchanges::begin_step() {
  *mixed_ = worker_.model();
  if (is_active_ && !asked_) ask();
}

void PairExchanges::ask() {
  const auto partner = draw_partner();
  if (!partner) return;
  asked_ = {*partner, worker_.step()};
  *sent_ = mixed();
  worker_.send(*partner, Message::of_model(worker_.step(), mixed()));
}

// In the place of one that has stopped the next one that has not.
std::optional<Rank> PairExchanges::draw_partner() const {
  const int count = sides_.partners(worker_.rank());
  const int drawn = std::min(static_cast<int>(worker_.uniform(worker_.step()) * count), count - 1);
  for (int passed = 0; passed < count; ++passed) {
    const Rank partner = sides_.partner(worker_.rank(), (drawn + passed) % count);
    if (!gossip_.has_stopped(partner)) return partner;
  }
  return std::nullopt;
}

void PairExchanges::take_what_has_come() {
  for (const auto& message : gossip_.receive_what_has_come()) meet(*message);
  if (asked_ && gossip_.has_stopped(asked_->partner)) await_answer();  // which may have come before its end
}

void PairExchanges::wait_for_older_than(Step steps) {
  if (asked_ && worker_.step() - asked_->step >= steps) await_answer();
}

void PairExchanges::await_answer() {
  if (const auto message = gossip_.receive_from(asked_->partner)) return meet(*message);
  asked_.reset();  // it has stopped without one
}

// Moments and, with steps taken since it asked, an active worker's BatchNorm statistics are its own: a difference of
// variances might be none.
void PairExchanges::meet(const Message& message) {
  if (!is_active_) {
    worker_.send(message.from, Message::of_model(worker_.step(), mixed()));
    mixed() = worker_.combine({{0.5, mixed()}, {0.5, message.model}});
    return;
  }
  asked_.reset();
  const ModelStatePtr sent = std::exchange(*sent_, nullptr);
  mixed() = !sent || sent == mixed() ? worker_.combine({{0.5, mixed()}, {0.5, message.model}})
                                     : worker_.combine({{1, mixed()}, {0.5, message.model}, {-0.5, sent}}, mixed());
}

void PairExchanges::end() {
  *mixed_ = worker_.model();
  take_what_has_come();
  if (asked_) await_answer();
  worker_.set_model(mixed());
}

}  // namespace syncopate
