// Keys of gossip and of coded gradients.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/experiments/key_cases.hpp"

namespace syncopate {

// Cases for the keys of graphs, with 8 workers.
inline std::vector<KeyCase> graphs() {
  std::vector<KeyCase> cases;
  for (const std::string name : {"'decentralized-sgd'", "'stochastic-gradient-push'"}) {
    const auto on = [&](const std::string& graph) {
      return std::vector<std::string>{"cluster.workers=8", "cluster.worker_factors=[1,1.3,1.1,1.8,1,1.2,1.4,1]",
                                      method(name + ",graph={kind=" + graph + "}")};
    };
    std::vector<std::string> kinds;
    for (const char* kind : {"torus", "hypercube", "exponential", "one-peer-exponential", "complete"})
      kinds.push_back(fmt::format("methods.0.graph.kind='{}'", kind));
    cases.push_back({on("'ring'"), kinds});
    cases.push_back(
        {on("'complete'"), {"methods.0.graph.kind='ring'", "methods.0.graph={kind='file',file='$/ring.csv'}"}});
    cases.push_back({on("'torus',rows=2"), {"methods.0.graph.rows=4"}});
    cases.push_back(
        {on("'file',file='$/ring.csv'"), {"methods.0.graph.file='$/shuffled.csv'", "methods.0.graph.directed=true"}});
    cases.push_back({on("'file',file='$/wheel.csv',weights='metropolis'"), {"methods.0.graph.weights='given'"}});
    cases.push_back({on("'file',file='$/weighted_ring.csv',weights='degree'"), {"methods.0.graph.weights='given'"}});
    cases.push_back({on("'file',file='$/weighted_ring.csv',weights='given'"), {"methods.0.graph.weights='degree'"}});
  }
  const auto in_pairs = [&](const std::string& keys) {
    return std::vector<std::string>{"cluster.workers=8", "cluster.worker_factors=[1,1.3,1.1,1.8,1,1.2,1.4,1]",
                                    method("'ad-psgd'" + keys)};
  };
  cases.push_back({in_pairs(""),
                   {"methods.0.overlap_steps=0", "methods.0.evaluated='own'", "methods.0.graph={kind='ring'}",
                    "methods.0.graph={kind='file',file='$/shuffled.csv'}"}});
  cases.push_back({in_pairs(",evaluated='own'"), {"methods.0.evaluated='average'"}});
  cases.push_back({in_pairs(",overlap_steps=0"), {"methods.0.overlap_steps=1"}});
  cases.push_back(
      {in_pairs(",graph={kind='ring'}"), {"methods.0.graph.kind='torus'", "methods.0.graph.kind='hypercube'"}});
  cases.push_back({in_pairs(",graph={kind='hypercube'}"), {"methods.0.graph.kind='ring'"}});
  cases.push_back({in_pairs(",graph={kind='torus'}"), {"methods.0.graph.rows=4"}});
  cases.push_back({in_pairs(",graph={kind='file',file='$/ring.csv'}"), {"methods.0.graph.file='$/shuffled.csv'"}});
  cases.push_back({{"cluster.workers=8", "cluster.worker_factors=[1,1.3,1.1,1.8,1,1.2,1.4,1]",
                    method("'stochastic-gradient-push',graph={kind='file',file='$/wheel.csv',weights='degree'}")},
                   {"methods.0.graph.weights='metropolis'"}});
  return cases;
}

// Returns the links of a directed ring of 8 workers, from each worker to the worker that is `hop` ranks later.
inline std::string links_in_steps_of(int hop) {
  std::string text = "from,to\n";
  for (int i = 0; i < 8; ++i) text += fmt::format("{},{}\n", i * hop % 8, (i + 1) * hop % 8);
  return text;
}

// Returns the links of a weighted ring, optionally with three spokes.
inline std::string weighted_ring(bool has_spokes) {
  std::string text = "from,to,weight\n";
  for (int i = 0; i < 8; ++i) text += fmt::format("{},{},0.125\n", i, (i + 1) % 8);
  for (int i = 2; has_spokes && i < 5; ++i) text += fmt::format("0,{},0.0625\n", i);
  return text;
}

inline const std::vector<KeyCase> gossip_and_codes = {
    {{method("'decentralized-sgd'")}, {"methods.0.algorithm='stochastic-gradient-push'", "methods.0.evaluated='own'"}},
    {{method("'decentralized-sgd',evaluated='own'")}, {"methods.0.evaluated='average'"}},
    {{method("'noloco',local_steps=4")},
     {"methods.0.local_steps=3", "methods.0.rate=0.5", "methods.0.pull=0.2", "methods.0.momentum=0.3",
      "methods.0.evaluated='own'"}},
    {{method("'wagma-sgd',group_size=2,global_every=6")},
     {"methods.0.group_size=4", "methods.0.global_every=4", "methods.0.divisor='released'",
      "methods.0.order='average-first'", "methods.0.evaluated='own'"}},
    {{method("'stochastic-gradient-push'")}, {"methods.0.overlap_steps=1", "methods.0.evaluated='own'"}},
    {{method("'stochastic-gradient-push',overlap_steps=3")},
     {"methods.0.overlap_steps=2", "methods.0.overlap='released'"}},
    {{method("'stochastic-gradient-push',overlap_steps=3,overlap='released'")},
     {"methods.0.overlap_steps=1", "methods.0.overlap='paper'"}},
    {{method("'gradient-coding',code='fractional',stragglers=1")},
     {"methods.0.stragglers=3", "methods.0.late='cancel'", "methods.0.code='cyclic'",
      "methods.0.code='ignore-stragglers'"}},
    {{method("'gradient-coding',code='cyclic',stragglers=1")}, {"methods.0.stragglers=2", "methods.0.late='cancel'"}},
    {{method("'gradient-coding',code='ignore-stragglers',stragglers=1")},
     {"methods.0.stragglers=2", "methods.0.late='cancel'"}},
    {{method("'gradient-coding',code='stochastic',copies=2,stragglers=1")},
     {"methods.0.copies=3", "methods.0.stragglers=2", "methods.0.straggler_share=0.4", "methods.0.late='cancel'",
      "methods.0.placement='balanced'", "methods.0.code_seed=2"}},
    {{method("'gradient-coding',code='stochastic',copies=2,threshold_s=0.1,straggler_share=0.2")},
     {"methods.0.threshold_s=0.08"}},
};

}  // namespace syncopate
