// Values that need not be there, as null in JSON.
#pragma once

#include <optional>

#include "results/formats/json.hpp"

namespace syncopate {

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <typename Value>
std::optional<Value> optional_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<Value>(value.get<Value>());
}

}  // namespace syncopate
