#include "workers/cluster/servers.hpp"

#include <fmt/format.h>

namespace syncopate {

std::string Servers::name_of(Rank server, int workers) const {
  const int index = server.value - workers;
  if (count == 1) return "the server";
  if (regions == 0) return fmt::format("server {}", index);
  return index == 0 ? "the global server" : fmt::format("the server of region {}", index - 1);
}

}  // namespace syncopate
