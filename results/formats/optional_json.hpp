// Values that need not be there, as null in JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace syncopate {

template <typename Value>
nlohmann::ordered_json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

template <typename Value>
std::optional<Value> optional_at(const nlohmann::ordered_json& json, const char* key) {
  const nlohmann::ordered_json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<Value>(value.get<Value>());
}

}  // namespace syncopate
