// Writes the state of an object, or reads it back: one function of the object, `keep(StateArchive&)`, names its members
// for both. What is on the disk is of this machine and build: bytes of numbers as they lie in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "workers/training/course_log.hpp"
#include "workers/training/flat_vector.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

class StateArchive;

template <typename Value>
concept KeepsItself = requires(Value& value, StateArchive& archive) {
  value.keep(archive);
};
template <typename Values>
concept OneBlock = requires(Values& values) {
  values.data();
};

class StateArchive {
 public:
  explicit StateArchive(ByteSink& out) : out_(&out) {}
  explicit StateArchive(ByteSource& in) : in_(&in) {}

  bool reads() const { return in_ != nullptr; }

  // All of them, in this order. What is read replaces what was there.
  template <typename... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }

 private:
  template <typename Value>
  void one(Value& value) {
    if constexpr (KeepsItself<Value>)
      value.keep(*this);
    else
      plain(value);
  }
  template <typename Value>
  void plain(Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && !std::is_pointer_v<Value>);
    bytes(&value, sizeof(value));
  }
  template <typename Value>
  void plain(std::vector<Value>& values) {
    resize(values);
    elements(values);
  }
  template <typename Value>
  void plain(std::deque<Value>& values) {
    resize(values);
    elements(values);
  }
  template <typename Value>
  void plain(ByRank<Value>& values) {
    std::uint64_t size = values.size();
    one(size);
    if (reads() && size != static_cast<std::uint64_t>(values.size())) values = ByRank<Value>(static_cast<int>(size));
    for (auto&& value : values) one(value);
  }
  template <typename Value>
  void plain(std::optional<Value>& value) {
    bool is_there = value.has_value();
    one(is_there);
    if (reads()) value = is_there ? std::optional<Value>(std::in_place) : std::nullopt;
    if (is_there) one(*value);
  }
  template <typename Key, typename Value>
  void plain(std::map<Key, Value>& values) {
    std::uint64_t size = values.size();
    one(size);
    if (!reads()) {
      for (auto& [key, value] : values) {
        Key copy = key;
        (*this)(copy, value);
      }
      return;
    }
    values.clear();
    for (; size > 0; --size) {
      Key key{};
      one(key);
      one(values[key]);
    }
  }
  void plain(std::string& text) {
    resize(text);
    bytes(text.data(), text.size());
  }
  void plain(FlatVector& values) {
    std::uint64_t size = values.size();
    one(size);
    if (reads()) values = FlatVector(size);
    bytes(values.data(), size * sizeof(float));
  }

  template <typename Values>
  void resize(Values& values) {
    std::uint64_t size = values.size();
    one(size);
    if (!reads()) return;
    values.clear();
    values.resize(size);
  }
  template <typename Values>
  void elements(Values& values) {
    using Value = typename Values::value_type;
    if constexpr (OneBlock<Values> && std::is_trivially_copyable_v<Value> && !KeepsItself<Value>)
      bytes(values.data(), values.size() * sizeof(Value));
    else
      for (Value& value : values) one(value);
  }
  void bytes(void* data, std::size_t size) {
    if (size == 0) return;
    if (out_)
      out_->write(data, size);
    else
      in_->read(data, size);
  }

  ByteSink* out_ = nullptr;
  ByteSource* in_ = nullptr;
};

}  // namespace syncopate
