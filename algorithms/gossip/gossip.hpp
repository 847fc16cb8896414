// What methods without a centre share: workers that send each other models, some of which stop before others, what is
// evaluated of them, and with what a worker goes on that loses its state.
//
// Only other workers have anything for one that has lost its state: it takes up the model that one of them sent it last
// (as senders that log their last message could send it again; as with a lost average, no time is charged), before the
// first one the first model of all. Its optimizer's moments begin anew. None of its steps count as dropped: what they
// did is in the models that it has sent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Traits::exchanged_whole of these methods.
inline constexpr std::string_view models_of_neighbours =
    "neighbours would have to keep copies of each other's models, and no source of this project says how";

class Gossip {
 public:
  explicit Gossip(Worker& worker, OwnModels evaluated = OwnModels::mean) : worker_(worker), evaluated_(evaluated) {
    declare_newest(worker.model());
  }

  // The next message of another worker; nothing once it has stopped.
  ReceivedMessage receive_from(Rank from, Worker::Here at = Worker::Here::current());
  // What has come by now, in the order of arrival, of workers that have not stopped.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::Here at = Worker::Here::current());
  // As far as is known here. Nobody sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // The mean by these weights, with their sum.
  WeightedState mean(std::vector<WeightedState> terms) const;

  // To be called by each worker after each step, which is reported: this is its model now, of that weight among all.
  // After the last step `stop` follows and says so.
  void end_step(double weight = 1) {
    const ModelStatePtr others = others_newest_.lock();
    worker_.report_steps();
    if (others) declare_newest(others);  // steps alone make nothing that another worker has
    if (worker_.budget_left()) worker_.publish(OwnModel{.weight = weight, .evaluated = evaluated_});
  }

  struct Ending {
    double weight = 1;
    bool others_may_wait = false;  // for a message of this worker, though all have done their last step
  };
  // The end of this worker's training. All send their models to worker 0, which publishes their mean, weighted: for the
  // result alone, so that none takes a transfer on the clock (Message::Kind::last_model). Until it has them all it has not
  // left, so it tells `listeners`, who may wait for its next message. Workers that leave because their own data are used
  // up are not in the mean; if worker 0 is one, there is none.
  void stop(std::span<const Rank> listeners, const Ending& how, Worker::Here at = Worker::Here::current());

 private:
  ReceivedMessage unless_last(ReceivedMessage message);
  void declare_newest(const ModelStatePtr& others) {
    worker_.declare_newest(others);
    others_newest_ = others;
  }
  void publish_mean(Message own, Worker::Here at);

  Worker& worker_;
  OwnModels evaluated_;
  std::weak_ptr<const ModelState> others_newest_;  // which the worker holds, where it may lose its state
  std::map<Rank, Message> last_;                   // of workers that have stopped
};

// Reads the key `evaluated`: "average" (default) or "own".
OwnModels read_own_models(Settings& settings);

}  // namespace syncopate
