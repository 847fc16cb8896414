// Every key of [[methods]] does something, for each method.
#include <fmt/format.h>

#include "tests/experiments/compression_key_cases.hpp"
#include "tests/experiments/gossip_key_cases.hpp"
#include "tests/experiments/local_key_cases.hpp"
#include "tests/experiments/server_key_cases.hpp"

namespace syncopate {
namespace {

// Workers whose micro-batches take unlike and varying times; 128 samples, so 8 steps per epoch.
constexpr const char* compared = R"(
seeds = [3]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
worker_factors = [1, 1.3, 1.1, 1.8]
[network]
kind = "fixed"
latency_s = 0.001
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 2
[training.learning_rate]
schedule = "cosine"
peak = 0.1
[training.optimizer]
name = "sgd"
[datasets.gaussian-mixture]
classes = 3
dimension = 4
train = 128
test = 20
[budget]
steps = 24
[evaluation]
every_steps = 8
)";

const std::vector<KeyCase> synchronous = {
    {{method("'sync-sgd'")},
     {"methods.0.algorithm='decentralized-sgd'", "methods.0.label='another'", "methods.0.training.clip_norm=0.1"}},
    {{method("'dropcompute',threshold_s=0.05")},
     {"methods.0.threshold_s=0.04", "methods.0.preempt='microbatch'", "methods.0.preempt='backward'",
      "methods.0.preempt='layer'", "methods.0.normalisation='computed'", "methods.0.compensation='recompute'",
      "methods.0.compensation='carry-over'"}},
    {{"training.learning_rate.final=0.01", method("'dropcompute',threshold_s=0.05")},
     {"methods.0.compensation='extra-steps'"}},
    {{method("'dropcompute',threshold_s=0.05,preempt='backward',forward_share=0.3")}, {"methods.0.forward_share=0.9"}},
    {{method("'dropcompute',threshold_s=0.05,normalisation='mean-rate',mean_drop_rate=0.2")},
     {"methods.0.mean_drop_rate=0.3"}},
    {{"training.learning_rate.final=0.01",
      method("'dropcompute',threshold_s=0.05,compensation='extra-steps',redundancy=0.2")},
     {"methods.0.redundancy=0.5", "methods.0.learning_rate_schedule='kept'"}},
    {{method("'dropcompute',threshold_s=0.08,compensation='larger-batch',redundancy=0.25")},
     {"methods.0.redundancy=1"}},
    {{method("'dropcompute',threshold_s=0.05,compensation='recompute'")}, {"methods.0.recompute_every_steps=5"}},
    {{method("'dropcompute',threshold_s=0.03,compensation='carry-over'")}, {"methods.0.carried_at_most=1"}},
    {{method("'random-drop',drop_rate=0.3")},
     {"methods.0.drop_rate=0.5", "methods.0.from_step=2", "methods.0.from_epoch=1"}},
};

// What a number was solved for, of all rules that have one.
const std::vector<std::string>& told() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* method :
         {"local-sgd", "outer-local-sgd", "palsgd", "edit", "hierarchical-sgd", "dropcompute-local-sgd", "cocod-sgd",
          "overlap-local-sgd", "co2", "overlapped-diloco", "streaming-diloco"})
      for (const char* rule : {"constant", "power", "post-local"})
        for (const char* key : {"share", "rounds", "found"})
          all.push_back(fmt::format("methods[{}].period[{}].solved_for.{}", method, rule, key));
    return all;
  }();
  return names;
}

std::vector<IdleKey> idle_keys() {
  std::vector<IdleKey> keys = {
      {"methods.label", IdleKey::Hash::differs, "names the method in tables"},
      {"methods[decentralized-sgd].graph[file].file_hash", IdleKey::Hash::differs, "refuses a file of other content"},
      {"methods[stochastic-gradient-push].graph[file].file_hash", IdleKey::Hash::differs, "the same"},
      {"methods[ad-psgd].graph[file].file_hash", IdleKey::Hash::differs, "the same"},
      {"methods[gradient-coding][cyclic].code_seed", IdleKey::Hash::differs,
       "another code of the same sum, which differs by what is rounded away"},
      {"methods[mindflayer][mindflayer].trials", IdleKey::Hash::differs, "is refused: a key of the other rule"},
      {"methods[mindflayer][mindflayer].correction", IdleKey::Hash::differs, "the same"},
  };
  for (const std::string& key : told())
    keys.push_back({key, IdleKey::Hash::same, "the number that was found decides, and it is in the hash"});
  return keys;
}

TEST_F(KeyWalk, OfMethods) {
  write_images("images", 3);
  write_texts("texts", 3);
  write("ring.csv", links_in_steps_of(1));
  write("shuffled.csv", links_in_steps_of(3));
  write("weighted_ring.csv", weighted_ring(false));
  write("wheel.csv", weighted_ring(true));
  for (const auto& cases :
       {synchronous, compressed, more_compressed(), messages, averages, moments, old_gradients, thresholds, quorums,
        asynchronous, periods(), policies(), model_weights(), local, gossip_and_codes, graphs()})
    walk(compared, cases, idle_keys());
  expect_completeness({"methods"});
  expect_results_by_version(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/methods.json");
}

}  // namespace
}  // namespace syncopate
