#include "experiments/sections/start_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "workers/files/content_hash.hpp"
#include "workers/files/npy_array.hpp"

namespace syncopate {
namespace {

std::vector<float> floats_in(const std::filesystem::path& file) {
  try {
    const NpyArray array(file);
    if (array.shape().size() != 1 || array.type() != "<f4")
      throw NpyFault(
          fmt::format("has {} dimensions and elements of type {}; must be one model's parameters, (n,) of "
                      "float32: numpy.save(\"{}\", a.astype(\"<f4\").ravel())",
                      array.shape().size(), described_type(array.type()), file.filename().string()));
    std::vector<float> values(array.data<float>(), array.data<float>() + array.shape().front());
    const auto wrong = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    if (wrong != values.end())
      throw NpyFault(fmt::format("its number {} is {}; must be finite", wrong - values.begin(), *wrong));
    return values;
  } catch (const NpyFault& problem) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), problem.what()));
  } catch (const std::system_error& problem) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), problem.code().message()));
  }
}

StartingPoint load(const std::filesystem::path& file) {
  StartingPoint start{.parameters = floats_in(file)};
  const std::filesystem::path buffers = std::filesystem::path(file).replace_filename("buffers.npy");
  if (std::filesystem::exists(buffers)) start.buffers = floats_in(buffers);
  return start;
}

std::string digest_of(const StartingPoint& start) {
  std::string bytes;
  for (const auto* values : {&start.parameters, &start.buffers}) {
    bytes += fmt::format("{} ", values->size());
    bytes.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
  }
  return content_hash(bytes);
}

// Empty: it suits the model, or nothing is known of that.
std::string misfit(const StartingPoint& start, const ObjectivePlan& objective) {
  const auto parameters = static_cast<std::int64_t>(start.parameters.size());
  const auto buffers = static_cast<std::int64_t>(start.buffers.size());
  if (objective.parameters == 0) return {};
  if (parameters != objective.parameters)
    return fmt::format("holds {} parameters; the model has {}", parameters, objective.parameters);
  if (buffers > 0 && buffers != objective.buffers)
    return fmt::format("has beside it a buffers.npy that holds {} numbers; the model has {}", buffers,
                       objective.buffers);
  return {};
}

}  // namespace

std::shared_ptr<const StartingPoint> read_start(Settings& training, const ObjectivePlan& objective, bool time_only) {
  const Key key{"start", "A finished run's parameters.npy: where the training starts, with buffers.npy beside it.", "",
                "the model's own first values"};
  const Key hash{"start_hash", "Written by the program: the digest of these files, which must still be that.", "",
                 "any content"};
  static_cast<void>(training.has(hash));  // known, also where there is no file
  if (!training.has(key)) return nullptr;
  const std::filesystem::path file = training.file("start");
  if (file.empty()) return nullptr;
  if (time_only) {
    training.fault("start", "must be left out: there is no model");
    return nullptr;
  }
  try {
    auto start = std::make_shared<const StartingPoint>(load(file));
    const std::string digest = digest_of(*start);
    if (training.text("start_hash", digest) != digest)
      training.fault("start_hash",
                     fmt::format("the content of {} is another, {}; left out, any is right", file.string(), digest));
    const std::string wrong = misfit(*start, objective);
    if (wrong.empty()) return start;
    training.fault("start", fmt::format("{} {}", file.string(), wrong));
  } catch (const std::runtime_error& problem) {
    training.fault("start", problem.what());
  }
  return nullptr;
}

}  // namespace syncopate
