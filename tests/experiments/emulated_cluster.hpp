// Parts of experiments for MPI in which ranks sleep for most of a micro-batch's time.
#pragma once

#include <fmt/format.h>

#include <string>

namespace syncopate {

inline std::string emulated_cluster(int workers, double micro_batch_s) {
  return fmt::format("[cluster]\nworkers = {}\nmicro_batch_s = {}\npace = \"emulate\"\n", workers, micro_batch_s);
}

// Training by plain SGD. The model and other settings follow in separate tables.
inline constexpr const char* plain_sgd = R"([training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
)";

}  // namespace syncopate
