#include "workers/models/script_model.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "workers/datasets/digest_cache.hpp"
#include "workers/models/script_options.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {
namespace {

// What the file holds is known to LibTorch alone, which is loaded for it.
Network load_network(Settings& table, const SampleShape& shape, std::int64_t classes, const ScriptOptions& options) {
  const std::filesystem::path file = table.file("file");
  if (file.empty()) return Network(shape);
  try {
    const std::string hash = digest_cache().digest(file);
    if (table.text("file_hash", hash) != hash)
      table.fault("file_hash",
                  fmt::format("the content of {} is another, {}; left out, any is right", file.string(), hash));
    return load_script_network(file, hash, shape, classes, options);
  } catch (const ScriptFault& problem) {
    throw ModelFault("file", fmt::format("{}: {}", file.string(), problem.what()));
  } catch (const std::runtime_error& problem) {
    throw ModelFault("file", problem.what());
  }
}

}  // namespace

Model read_torchscript(Settings& table) {
  const std::string file = table.text(
      {"file", "What torch.jit.script has saved; beside the experiment file or in the working directory; required."},
      "");
  const Key hash{"file_hash", "Written by the program: the digest of the file's content, which must still be that.", "",
                 "any content"};
  static_cast<void>(table.has(hash));  // known, also where the file is not needed
  ScriptOptions options;
  options.drawn =
      table.choice({"initial", "Where a training starts: at the file's values, or at drawn ones like them."},
                   {{"file", false}, {"drawn", true}}, options.drawn);
  options.fused = table.choice({"fused", "Whether micro-batches are evaluated together, where that changes nothing."},
                               {{"auto", true}, {"never", false}}, options.fused);
  const auto chunk_samples = table.integer(
      {"chunk_samples", "Samples that one core evaluates together, where it may.", "samples"}, 1, 1 << 20, 32);
  return {.network =
              [table, options, file](const SampleShape& shape, std::int64_t classes) mutable {
                if (file.empty()) throw ModelFault("file", "must be given: the file that torch.jit.script has saved");
                return load_network(table, shape, classes, options);
              },
          .chunk_samples = chunk_samples};
}

}  // namespace syncopate
