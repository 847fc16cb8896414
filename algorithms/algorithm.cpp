#include "algorithms/algorithm.hpp"

namespace syncopate {

void Algorithm::serve(Server&) const {}

}  // namespace syncopate
