#pragma once

#include <vector>

#include "workers/cluster/accounting.hpp"

namespace syncopate {

// The account that a track of a timeline shows.
inline Account account_of(const std::vector<Span>& spans) {
  Account account;
  for (const Span& span : spans) account[span.activity] += span.duration();
  return account;
}

}  // namespace syncopate
