// How the MPI cluster paces a micro-batch (the simulated one always takes the drawn duration).
#pragma once

namespace syncopate {

enum class Pace {
  inject,   // real computation, then a sleep of the added delay and (factor - 1) x the measured time
  emulate,  // real computation inside, then a sleep until the whole drawn duration has passed
};

}  // namespace syncopate
