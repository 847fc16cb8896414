// The network models that an experiment file may name. One row each: its name, one sentence for `syncopate list` and
// the messages, and the factory that reads its keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/network/network.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct NetworkContext {
  std::optional<int> workers{};  // none: what is written is a fault, and checks against it are left out
  std::uint64_t seed = 0;        // of the jitter
};

struct NetworkRow {
  std::string_view name;
  std::string_view sentence;
  std::unique_ptr<NetworkModel> (*make)(Settings& settings, const NetworkContext& context);
};

std::span<const NetworkRow> networks();

// The table [network]: `kind`, the keys of that model, and for all but "free" `jitter` and `serial_s`. Never null:
// faults are collected by `settings`.
std::unique_ptr<NetworkModel> make_network(Settings& settings, const NetworkContext& context);

}  // namespace syncopate
