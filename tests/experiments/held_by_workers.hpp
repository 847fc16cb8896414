// Experiments with methods that together use every kind of state that workers may have besides a model. Tests run them
// in two ways (for example with and without a checkpoint, or divided and undivided), and expect equal results. Each
// test has its own cluster. Micro-batches take one second.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/sections/experiment.hpp"

namespace syncopate::held {

// Returns the tables before the methods: a linear model on this number of samples, which is evaluated during the run.
inline std::string linear_training(int samples) {
  return fmt::format(R"([training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 4
learning_rate = {{ schedule = "cosine", peak = 0.2 }}
optimizer = {{ name = "sgd", momentum = 0.9 }}
[datasets.gaussian-mixture]
train = {}
test = 60
[evaluation]
every_steps = 3
train_samples = 60
)",
                     samples);
}

// Measurements that only the simulated cluster has.
inline constexpr const char* measurements = R"([measurements]
every_steps = 4
gradient_norm = true
step_gradient_norm = true
consensus_distance = true
samples = 40
)";

// A model with batch normalisation. Its statistics are sent with gradients, and its steps consist of several tasks. The
// optimizer, LAMB, works by layers, so each of its steps needs several passes.
inline constexpr const char* batch_normalised_training = R"([training]
model = "cnn"
dataset = "fashion-mnist"
micro_batch_size = 4
learning_rate = { schedule = "constant", peak = 0.01 }
optimizer = { name = "lamb" }
[models.cnn]
channels = [2]
kernel = 3
dense = 4
batch_norm = true
[evaluation]
every_steps = 6
train_samples = 60
)";

// Each text has the keys of one method in [[methods]].
using Methods = std::vector<std::string>;

inline constexpr const char* sync_sgd = R"(algorithm = "sync-sgd")";
inline constexpr const char* async_sgd = R"(algorithm = "async-sgd")";
inline constexpr const char* local_sgd = R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 })";
inline constexpr const char* top_k = R"(algorithm = "sync-sgd"
compression = { name = "top-k", ratio = 0.1 })";
inline constexpr const char* averaged_moments = R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
moments = "average")";

// Methods that train a model with batch normalisation.
inline const Methods families = {sync_sgd, local_sgd, async_sgd, R"(algorithm = "dropcompute"
threshold_s = 2.5)"};

// Methods for clusters with outages in which workers lose their state.
inline const Methods that_lose_state = {sync_sgd,
                                        local_sgd,
                                        async_sgd,
                                        top_k,
                                        R"(algorithm = "decentralized-sgd")",
                                        R"(algorithm = "stochastic-gradient-push")",
                                        R"(algorithm = "ad-psgd")",
                                        R"(algorithm = "async-sgd"
maximum_staleness = 2
compression = { name = "top-k", ratio = 0.1, rejected = "return" })"};

// One method for each kind of state besides a model.
inline const Methods with_state = {R"(algorithm = "sync-sgd"
training = { clip_norm = 1.0 }
compression = { name = "top-k", ratio = 0.1 })",
                                   R"(algorithm = "random-drop"
drop_rate = 0.3
compression = { name = "top-k", ratio = 0.1, dropped = "fold" })",
                                   R"(algorithm = "sync-sgd"
compression = { name = "scalecom", ratio = 0.1 })",
                                   R"(algorithm = "sync-sgd"
compression = { name = "one-bit", exchange = "two-phase" })",
                                   R"(algorithm = "sync-sgd"
compression = { name = "powersgd", rank = 1, least_rate = 1.0 })",
                                   R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "qsgd", exchange = "two-phase" })",
                                   R"(algorithm = "cocod-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "sign" })",
                                   R"(algorithm = "streaming-diloco"
fragments = 3
delay = 1
period = { rule = "constant", steps = 3 }
outer = { name = "diloco", rate = 0.7, momentum = 0.5 }
compression = { name = "fp4", error_feedback = true })",
                                   R"(algorithm = "k-sync"
gradients = 2
compression = { name = "top-k", ratio = 0.1, rejected = "return" })",
                                   R"(algorithm = "async-local-sgd"
local_steps = 2
update = { name = "plain", rate = 0.2 }
compression = { name = "int8", error_feedback = true })",
                                   R"(algorithm = "heloco"
local_steps = 2
correction = { agreement = 1 })",
                                   R"(algorithm = "ormo"
momentum = 0.5)",
                                   R"(algorithm = "sync-sgd"
average = { decay = 0.9 })",
                                   R"(algorithm = "async-sgd"
training = { clip_norm = 1.0, optimizer = { name = "adamw" } }
average = { decay = 0.9 })",
                                   R"(algorithm = "backup-workers"
backups = 1
servers = 3)",
                                   averaged_moments};

// Methods with the compressions that are not in the lists above.
inline const Methods with_more_compressions = {R"(algorithm = "sync-sgd"
compression = { name = "dgc", ratio = 0.1 })",
                                               R"(algorithm = "sync-sgd"
compression = { name = "random-k", ratio = 0.1 })",
                                               R"(algorithm = "sync-sgd"
compression = { name = "majority", momentum = 0.9 })",
                                               R"(algorithm = "sync-sgd"
compression = { name = "qsgd", levels = 7 })",
                                               R"(algorithm = "sync-sgd"
compression = { name = "int8", exchange = "two-phase" })",
                                               R"(algorithm = "local-sgd"
period = { rule = "constant", steps = 3 }
compression = { name = "sign" })",
                                               R"(algorithm = "async-sgd"
maximum_staleness = 2
compression = { name = "top-k", ratio = 0.1, rejected = "return" })",
                                               R"(algorithm = "backup-workers"
backups = 1
servers = 3
compression = { name = "sign" })"};

// Returns [[methods]] for these methods. Each gets its own label.
inline std::string text_of(const Methods& methods) {
  std::string text;
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const std::size_t name = methods[i].find('"') + 1;
    text += fmt::format("[[methods]]\nlabel = \"{} {}\"\n{}\n", i,
                        methods[i].substr(name, methods[i].find('"', name) - name), methods[i]);
  }
  return text;
}

// Returns the experiment that begins with the text `begin` and has the example in the method's row of the registry.
// Uses Adam if the method needs it. `load` makes an experiment from a text.
template <typename Load>
Experiment of_example(const std::string& begin, std::string_view algorithm, std::string_view example,
                      const Load& load) {
  const std::string method = fmt::format("algorithm = \"{}\"\n{}", algorithm, example);
  try {
    return load(begin + text_of({method}));
  } catch (const ConfigurationFault&) {  // the method needs another optimizer
    return load(begin +
                text_of({method + "\ntraining = { optimizer = { name = \"adam\", bias_correction = false } }"}));
  }
}

}  // namespace syncopate::held
