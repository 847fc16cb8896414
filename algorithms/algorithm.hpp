// A method: one worker's whole life as plain sequential code, and a server's where it has one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "experiments/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void run(Worker& worker) const = 0;
  virtual bool has_server() const { return false; }
  virtual void serve(Server& server) const;  // only called if has_server()
};

// What an algorithm may need to know to check its settings.
struct AlgorithmContext {
  int workers = 1;
  int micro_batches = 1;
  Step learning_rate_warmup{};
  std::optional<Step> total_steps{};  // none: the budget is not counted in steps
};

// The registry: one row per method. It feeds `syncopate list`, the error messages and the tests.
struct AlgorithmRow {
  std::string_view name;      // as written in TOML
  std::string_view sentence;  // what it does
  std::string_view source;    // paper
  std::unique_ptr<Algorithm> (*make)(Settings& settings, const AlgorithmContext& context);
};
std::span<const AlgorithmRow> algorithms();

// The keys of [[methods]] besides `algorithm` and `label` are the algorithm's own.
// An unknown name is a fault of the settings, and the result null.
std::unique_ptr<Algorithm> make_algorithm(Settings& settings, const AlgorithmContext& context);

// Runs the algorithm on all participants of the context's cluster.
RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& context);

}  // namespace syncopate
