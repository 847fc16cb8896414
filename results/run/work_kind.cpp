#include "results/run/work_kind.hpp"

#include <utility>

namespace syncopate {

std::string work_kind(const TomlNode& resolved) {
  const TomlNode* training = resolved.find("training");
  if (!training) return {};
  TomlNode kind;
  for (const char* const key : {"model", "dataset", "micro_batch_size", "batching", "token_budget"})
    if (const TomlNode* value = training->find(key)) kind.set(key, {}, *value);
  for (const auto& [tables, chosen] : {std::pair{"models", "model"}, std::pair{"datasets", "dataset"}}) {
    const TomlNode *described = resolved.find(tables), *chosen_name = kind.find(chosen);
    const auto* name = chosen_name ? std::get_if<std::string>(&chosen_name->value) : nullptr;
    if (const TomlNode* table = described && name ? described->find(*name) : nullptr) kind.set(tables, {}, *table);
  }
  return inline_toml(kind);
}

}  // namespace syncopate
