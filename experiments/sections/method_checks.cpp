#include "experiments/sections/method_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "experiments/sections/outages_section.hpp"

namespace syncopate {
namespace {

// Whether servers hold the model, each of them all of it.
bool has_servers_of_whole_models(const Method& method) {
  const Servers servers = method.algorithm->traits().servers;
  return servers > 0 && !servers.hold_slices();
}

// Where no server holds the model, that which is evaluated is worker 0's.
void check_who_leaves(Settings& root, const Definition& definition) {
  const auto& data_of = definition.cluster.plan.data_of;
  if (data_of.empty() || !data_of.front()) return;
  for (const Method& method : definition.methods) {
    if (!method.algorithm || has_servers_of_whole_models(method)) continue;
    root.section("cluster").fault(
        "leave", fmt::format("must not name worker 0, whose model is the one that \"{}\" has evaluated", method.label));
    return;
  }
}

// A server's accounts know micro-batches alone, and it may end one that is under way.
void check_pauses(Settings& root, const Definition& definition) {
  if (!definition.cluster.plan.pauses) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers > 0)
      return root.fault("methods", fmt::format("\"{}\" has a server, which needs delays that are part of the "
                                               "computation: no delays that are sleeps, and no cluster.trailing_s",
                                               method.label));
}

// A fault of the optimizer's name in [training], or of the method's own.
void fault_of_optimizer(Settings& root, const Definition& definition, const Method& method,
                        const std::string& message) {
  if (!method.own) return root.section("training").section("optimizer").fault("name", message);
  const auto place = static_cast<std::size_t>(&method - definition.methods.data());
  root.sections("methods")[place].fault("training", fmt::format("its name {}", message));
}

// Each of several servers has parts of tensors alone. (Gradients are clipped by the workers, who have the whole.)
void check_norms(Settings& root, const Definition& definition) {
  for (const Method& method : definition.methods) {
    if (!method.algorithm || !method.algorithm->traits().servers.hold_slices()) continue;
    if (definition.of(method).training.plan.optimizer->passes() > 0)
      return fault_of_optimizer(root, definition, method,
                                fmt::format("must be an optimizer that looks at each parameter alone: with the servers "
                                            "of \"{}\" nobody has the norm of a whole tensor",
                                            method.label));
  }
}

void check_outages(Settings& root, const Definition& definition) {
  const ClusterSection& cluster = definition.cluster;
  if (!cluster.plan.outages) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && has_servers_of_whole_models(method))
      return check_outages_of_steps(root, *cluster.plan.outages, cluster.plan.micro_batches,
                                    cluster.usual_micro_batch_s, method.label);
}

// An exchange that begins during the backward pass. One fault for all methods of a kind.
void check_overlap(Settings& root, const Definition& definition) {
  if (!definition.cluster.plan.network->overlap()) return;
  std::vector<std::string> of_others, compressed;
  for (const Method& method : definition.methods) {
    if (!method.algorithm) continue;
    if (!method.algorithm->traits().can_overlap_backward)
      of_others.push_back(fmt::format("\"{}\"", method.label));
    else if (method.algorithm->compression())
      compressed.push_back(fmt::format("\"{}\"", method.label));
  }
  Settings network = root.section("network");
  if (const auto count = of_others.size(); count > 0)
    network.fault("overlap", fmt::format("must be left out: {} exchange{} something else than sums of a step's "
                                         "gradients, which alone begin during the backward pass",
                                         fmt::join(of_others, ", "), count == 1 ? "s" : ""));
  if (const auto count = compressed.size(); count > 0)
    network.fault("overlap", fmt::format("must be left out: {} compress{} whole gradients", fmt::join(compressed, ", "),
                                         count == 1 ? "es" : ""));
}

}  // namespace

void check_methods(Settings& root, const Definition& definition) {
  check_who_leaves(root, definition);
  check_pauses(root, definition);
  check_norms(root, definition);
  check_outages(root, definition);
  check_overlap(root, definition);
}

}  // namespace syncopate
