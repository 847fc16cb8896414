#include "workers/compression/named_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syncopate {

bool is_table(const std::vector<std::string>& names, const ParameterTensor& tensor) {
  const auto contains = [&](const std::string& name) { return tensor.name.find(name) != std::string::npos; };
  return tensor.rows > 0 && tensor.size > 0 && std::ranges::any_of(names, contains);
}

bool has_table(const std::vector<std::string>& names, std::span<const ParameterTensor> tensors) {
  return std::ranges::any_of(tensors, [&](const ParameterTensor& tensor) { return is_table(names, tensor); });
}

std::string quoted(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "\"" : ", \"") + name + "\"";
  return list;
}

std::string must_name_a_matrix(std::span<const ParameterTensor> tensors) {
  std::vector<std::string> matrices;
  for (const ParameterTensor& tensor : tensors)
    if (tensor.rows > 0 && tensor.size > 0) matrices.push_back(tensor.name);
  return fmt::format("one of them must be in the name of a matrix of the model: {}",
                     matrices.empty() ? "it has none" : quoted(matrices));
}

void check_tables(Settings& method, const std::optional<CompressionOptions>& options,
                  std::span<const ParameterTensor> tensors) {
  if (!options || options->kind != CompressionOptions::Kind::rows || tensors.empty()) return;
  if (options->tables.empty() || has_table(options->tables, tensors)) return;
  method.section({"compression"}).fault("tables", must_name_a_matrix(tensors));
}

}  // namespace syncopate
