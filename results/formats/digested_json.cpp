#include "results/formats/digested_json.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include "results/formats/json.hpp"

namespace syncopate {
namespace {

constexpr std::string_view key = "crc32", end = "\n}\n";

std::string digest_of(const std::string& text) {
  return fmt::format("{:08x}",
                     crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

// What stands in the place of the end.
std::string last_member(const std::string& digest) { return fmt::format(",\n  \"{}\": \"{}\"{}", key, digest, end); }

}  // namespace

std::string json_digest(const Json& value) {
  return digest_of(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string with_digest(const Json& object) {
  const std::string text = object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return text.substr(0, text.size() - end.size()) + last_member(digest_of(text));
}

bool is_as_written(std::string_view text, const Json& object, std::string_view last, std::string_view or_last) {
  if (!object.is_object() || object.empty()) return false;
  const std::string found = std::prev(object.end()).key();
  if (found != key) return found == last || (!or_last.empty() && found == or_last);
  const std::size_t added = last_member("01234567").size();
  if (text.size() < added) return false;
  const std::string digested = std::string(text.substr(0, text.size() - added)) + std::string(end);
  return text.substr(text.size() - added) == last_member(digest_of(digested));
}

}  // namespace syncopate
