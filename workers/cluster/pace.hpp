// How long a micro-batch takes on a cluster that computes it for real. (The simulated one takes the drawn duration.)
#pragma once

namespace syncopate {

enum class Pace {
  inject,   // real computation, then a sleep of the added delay and (factor - 1) x the measured time
  emulate,  // real computation inside, then a sleep until the whole drawn duration has passed
};

}  // namespace syncopate
