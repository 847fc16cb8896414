#include "workers/cluster/account.hpp"

#include <numeric>

namespace syncopate {

Duration Account::total() const { return std::accumulate(time.begin(), time.end(), Duration{}); }

}  // namespace syncopate
