// Ringmaster ASGD: asynchronous SGD along gradients whose delay is below R alone. With stops, a computation whose delay
// comes to R is cancelled, and its worker starts anew from the newest model.
// Source:  Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD: The First Asynchronous SGD with Optimal Time
//          Complexity". With stops: after its authors' code.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: delay in updates since a computation's start.
// Cost:    per gradient P floats up and P down, P more down per stop; nobody waits for anybody.
// Differs: a message takes time, so that a gradient may be on its way when the server stops its worker: it is dropped
//          on arrival, and the worker gets no other model. An ignored gradient does not advance the version. The
//          rate is asynchronous SGD's (`rate_scaling`), a constant one where the schedule is. By which constants the
//          paper's theory sets R and the rate, and what its experiments used, is not established: R must be given.
// Checks:  R = 1 without stops equals asynchronous SGD that keeps staleness 0 alone, a large R plain asynchronous SGD,
//          bit for bit; no gradient of a delay of R or more is used; timelines of stops.
#pragma once

#include <cstdint>

#include "algorithms/asynchronous/staleness_weight.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class Ringmaster : public Algorithm {
 public:
  enum class Late {
    stop,    // what comes to the delay R is cancelled
    finish,  // it goes on, and is ignored when it arrives
  };
  // delay_threshold: R, at least 1.
  explicit Ringmaster(std::int64_t delay_threshold, Late late = Late::stop, const UpdateRate& rate = {})
      : delay_threshold_(delay_threshold), late_(late), rate_(rate) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {
        .servers = 1, .takes_data_in_turn = late_ == Late::finish, .sends_gradients = true, .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("which gradients are too old depends on the pace of all");
  }

 private:
  std::int64_t delay_threshold_;
  Late late_;
  UpdateRate rate_;
};

std::unique_ptr<Algorithm> make_ringmaster(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
