// An algorithm made of two functions, for tests.
#pragma once

#include <functional>
#include <utility>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class Script : public Algorithm {
 public:
  explicit Script(std::function<void(Worker&)> run, std::function<void(Server&)> serve = {})
      : run_(std::move(run)), serve_(std::move(serve)) {}
  void run(Worker& worker) const override { run_(worker); }
  Traits traits() const override { return {.servers = serve_ ? 1 : 0}; }
  void serve(Server& server) const override { serve_(server); }

 private:
  std::function<void(Worker&)> run_;
  std::function<void(Server&)> serve_;
};

}  // namespace syncopate
