#include "experiments/sections/checkpoint_section.hpp"

namespace syncopate {

CheckpointPlan read_checkpoint(Settings& root) {
  CheckpointPlan plan;
  if (!root.has("checkpoint")) return plan;
  Settings checkpoint = root.section({"checkpoint",
                                      "What a killed run goes on from, beside its results: of runs under MPI, and of "
                                      "simulated ones with a model."});
  plan.every_s =
      checkpoint.number({"every_s", "A checkpoint each time that so much of this machine's time has passed.", "s"},
                        Range::positive(), plan.every_s);
  plan.is_written = checkpoint.flag({"write", "Whether there are checkpoints at all."}, plan.is_written);
  return plan;
}

}  // namespace syncopate
