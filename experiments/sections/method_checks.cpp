#include "experiments/sections/method_checks.hpp"

#include <fmt/format.h>

#include "experiments/sections/outages_section.hpp"

namespace syncopate {
namespace {

// Where there is not one server, the model that is evaluated is worker 0's.
void check_who_leaves(Settings& root, const Definition& definition) {
  const auto& data_of = definition.cluster.plan.data_of;
  if (data_of.empty() || !data_of.front()) return;
  for (const Method& method : definition.methods) {
    if (!method.algorithm || method.algorithm->traits().servers == 1) continue;
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

// Each of several servers has the norm of its own part alone.
void check_clipping(Settings& root, const Definition& definition) {
  if (definition.training.plan.clip_norm == 0) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers > 1)
      return root.section("training")
          .fault("clip_norm",
                 fmt::format("must be 0: with the servers of \"{}\" nobody has the norm of a whole gradient",
                             method.label));
}

// Nor that of a tensor.
void check_layer_wise(Settings& root, const Definition& definition) {
  if (definition.training.plan.optimizer->passes() == 0) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers > 1)
      return root.section("training")
          .section("optimizer")
          .fault("name", fmt::format("must be an optimizer that looks at each parameter alone: with the servers of "
                                     "\"{}\" nobody has the norm of a whole tensor",
                                     method.label));
}

void check_outages(Settings& root, const Definition& definition) {
  const ClusterSection& cluster = definition.cluster;
  if (!cluster.plan.outages) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers == 1)
      return check_outages_of_steps(root, *cluster.plan.outages, cluster.plan.micro_batches,
                                    cluster.usual_micro_batch_s, method.label);
}

}  // namespace

void check_methods(Settings& root, const Definition& definition) {
  check_who_leaves(root, definition);
  check_pauses(root, definition);
  check_clipping(root, definition);
  check_layer_wise(root, definition);
  check_outages(root, definition);
}

}  // namespace syncopate
