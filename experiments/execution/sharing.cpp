#include "experiments/execution/sharing.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <initializer_list>
#include <random>

namespace syncopate {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string call_of_this_process() {
  if (const std::string array = environment("SLURM_ARRAY_JOB_ID"); !array.empty()) return "slurm-array-" + array;
  for (const char* const job : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"})
    if (const std::string name = environment(job); !name.empty())
      return fmt::format("launch-{}-{}", name, environment("OMPI_MCA_orte_hnp_uri").substr(0, 60));
  if (const std::string step = environment("SLURM_STEP_ID"); !step.empty())  // srun
    return fmt::format("slurm-{}-{}", environment("SLURM_JOB_ID"), step);
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

int rank_in_launch() {
  for (const char* const rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const std::string number = environment(rank); !number.empty()) return std::atoi(number.c_str());
  return 0;
}

}  // namespace syncopate
