// Experiments for results_version_test, which compares their results with a table: every method without a model and on
// a quadratic, and a few methods on every network and with every distribution of delays.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/experiments/watched_methods.hpp"

namespace syncopate::watched {

inline constexpr const char* head = R"(name = "results"
[budget]
steps = 30
[evaluation]
every_steps = 10
train_samples = 100
[cluster]
workers = 4
micro_batch_s = 0.010
micro_batches = 2
slow_workers = { count = 1, factor = 1.5 }
)";
inline constexpr const char* ring = R"([network]
kind = "ring"
latency_s = 50e-6
bandwidth_bytes_per_s = 1e6
jitter = 0.1
)";
inline constexpr const char* stragglers = R"([[delays]]
kind = "bounded-lognormal"
form = "table"
scale = 0.5
unit = "micro_batch"
)";
inline constexpr const char* time_alone = "[training]\nmodel = \"none\"\nparameters = 1000\n";
inline constexpr const char* quadratic = R"([training]
model = "quadratic"
[models.quadratic]
dimension = 20
[training.learning_rate]
schedule = "cosine"
peak = 0.2
warmup_steps = 5
[training.optimizer]
name = "sgd"
momentum = 0.9
)";

struct Group {
  std::string name;
  std::string toml;
};

// Returns the text within the first quotation marks.
inline std::string_view kind_of(std::string_view toml) {
  toml.remove_prefix(toml.find('"') + 1);
  return toml.substr(0, toml.find('"'));
}

inline const std::vector<Group>& exact_groups() {
  static const std::vector<Group> groups = [] {
    const std::string begin = head;
    std::vector<Group> all = {
        {"time alone", begin + ring + stragglers + time_alone + methods},
        {"quadratic", begin + ring + stragglers + quadratic + methods + methods_that_need_models},
        {"outages", begin + ring + stragglers + time_alone + three_families +
                        "[[outages]]\nworkers = [3]\nat_s = 0.1\nduration_s = 0.05\n"
                        "[[outages]]\nmean_time_between_s = 0.2\nmean_duration_s = 0.02\nstate = \"lost\"\n"},
        {"adamw", begin + ring + quadratic + one_method}};
    const std::string sgd = "name = \"sgd\"\nmomentum = 0.9";
    all.back().toml.replace(all.back().toml.find(sgd), sgd.size(), "name = \"adamw\"\nweight_decay = 0.1");
    for (const char* network : {"kind = \"free\"", "kind = \"fixed\"\nlatency_s = 1e-3",
                                "kind = \"tree\"\nlatency_s = 50e-6\nbandwidth_bytes_per_s = 1e6",
                                "kind = \"two-level\"\nlatency_s = 50e-6\nbandwidth_bytes_per_s = 1e6\ngroup_size = 2\n"
                                "inside = { latency_s = 1e-6, bandwidth_bytes_per_s = 1e7 }\nbetween = \"tree\"",
                                "kind = \"parameter-server\"\nlatency_s = 50e-6\nbandwidth_bytes_per_s = 1e6"}) {
      all.push_back({fmt::format("network {}", kind_of(network)),
                     begin + "[network]\n" + network + "\n" + stragglers + time_alone + three_families});
    }
    for (const char* delay :
         {"kind = \"constant\"\nvalue = 1", "kind = \"uniform\"\nlow = 0\nhigh = 1",
          "kind = \"normal\"\nmean = 1\nstandard_deviation = 0.2", "kind = \"exponential\"\nmean = 1",
          "kind = \"shifted-exponential\"\nshift = 0.1\nmean = 1", "kind = \"gamma\"\nshape = 0.5\nscale = 1",
          "kind = \"weibull\"\nshape = 0.5\nscale = 1", "kind = \"pareto\"\nshape = 1.5\nminimum = 0.1",
          "kind = \"bernoulli\"\nprobability = 0.1\nvalue = 3", "kind = \"lognormal\"\nmu = 0\nsigma = 1\nscale = 0.5",
          "kind = \"bounded-lognormal\"\nform = \"formula\"\nscale = 0.5",
          "kind = \"histogram\"\ndata = \"dropcompute-160\"", "kind = \"drift\"\nper_step = 0.01\nmaximum = 0.2"}) {
      all.push_back({fmt::format("delays {}", kind_of(delay)),
                     begin + ring + "[[delays]]\n" + delay + "\nunit = \"micro_batch\"\n" + time_alone + one_method});
    }
    all.push_back({"delays in bursts, per step and group",
                   begin + ring + "[[delays]]\nkind = \"constant\"\nvalue = 0.02\nscope = \"step\"\ngroup_size = 2\n" +
                       "bursts = { mean_on_steps = 3, mean_off_steps = 5 }\n" + time_alone + one_method});
    return all;
  }();
  return groups;
}

inline const std::vector<Group>& rounded_groups() {
  static const std::vector<Group> groups = [] {
    std::vector<Group> all;
    for (const char* model : {"linear", "mlp"})
      all.push_back({model, fmt::format("{}{}[training]\nmodel = \"{}\"\ndataset = \"gaussian-mixture\"\n"
                                        "micro_batch_size = 8\n[models.mlp]\nhidden = [16]\n"
                                        "[training.learning_rate]\nschedule = \"constant\"\npeak = 0.05\n"
                                        "[training.optimizer]\nname = \"sgd\"\n[datasets.gaussian-mixture]\n"
                                        "train = 640\ntest = 100\n{}",
                                        head, ring, model, three_families)});
    return all;
  }();
  return groups;
}

}  // namespace syncopate::watched
