#include "results/directory/metadata.hpp"

#include <thread>

#include "results/formats/build_info.hpp"
#include "results/formats/host.hpp"
#include "results/formats/json.hpp"
#include "results/rows/summary.hpp"
#include "results/run/results_version.hpp"

namespace syncopate {

std::string to_json(const RunMetadata& metadata) {
  const BuildInfo& build = build_info();
  Json json;
  json["schema_version"] = results_schema_version;
  json["results_version"] = results_version;
  json["syncopate_version"] = build.version;
  json["commit"] = build.commit;
  json["dirty"] = build.dirty ? Json(*build.dirty) : Json(nullptr);
  json["host"] = host_name();
  json["operating_system"] = operating_system();
  json["processor"] = processor_name();
  json["cores"] = std::thread::hardware_concurrency();
  json["compiler"] = build.compiler;
  json["compiler_flags"] = build.flags;
  json["libtorch_version"] = metadata.libtorch_version;
  json["blas_kernel"] = metadata.blas_kernel;
  json["torch_kernels"] = metadata.torch_kernels;
  json["cluster"] = metadata.cluster;
  json["processes"] = metadata.processes;
  json["threads"] = metadata.threads;
  json["start"] = iso_time(metadata.start);
  json["end"] = iso_time(metadata.end);
  json["exit"] = metadata.exit;
  json["configuration_hash"] = metadata.hash;
  json["course"] = metadata.course;
  if (!metadata.call.empty()) json["call"] = metadata.call;
  if (metadata.measured_micro_batch_s) json["measured_micro_batch_s"] = *metadata.measured_micro_batch_s;
  if (metadata.measured_fit)
    json["measured_fit"] = {{"r_squared", metadata.measured_fit->r_squared},
                            {"largest_residual_s", metadata.measured_fit->largest_residual_s},
                            {"typical_residual_s", metadata.measured_fit->typical_residual_s},
                            {"micro_batches", metadata.measured_fit->points}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace syncopate
