// The JSON of result files. Whole numbers are read as what they are: where one is asked for, the library by itself
// takes 1.5 for 1 and -1 for 2^64 - 1, and for 1e300 its behaviour is undefined.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {

template <typename Value, typename = void>
struct JsonConversion : nlohmann::adl_serializer<Value> {};

template <std::integral Integer>
requires(!std::same_as<Integer, bool>) struct JsonConversion<Integer> : nlohmann::adl_serializer<Integer> {
  // Throws the library's type_error for what is not a whole number within the range of the type.
  template <typename AnyJson>
  static void from_json(const AnyJson& json, Integer& value) {
    const auto take = [&](auto number) {
      if (!std::in_range<Integer>(number)) throw fault("the whole number is out of range", json);
      value = static_cast<Integer>(number);
    };
    if (json.is_number_unsigned())
      take(*json.template get_ptr<const std::uint64_t*>());
    else if (json.is_number_integer())
      take(*json.template get_ptr<const std::int64_t*>());
    else
      throw fault("type must be a whole number", json);
  }

 private:
  template <typename AnyJson>
  static auto fault(const char* why, const AnyJson& json) {
    constexpr int wrong_type = 302;  // the library's number for it
    return AnyJson::type_error::create(wrong_type, why, &json);
  }
};

// Keys keep the order in which they are written.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, std::allocator, JsonConversion>;

}  // namespace syncopate
