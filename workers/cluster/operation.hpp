// What a collective is to the network.
#pragma once

namespace syncopate {

// all_reduce: everybody gets the sum. all_gather: everybody gets everybody's numbers. broadcast: everybody gets
// one member's vector.
enum class Operation { all_reduce, all_gather, broadcast };

}  // namespace syncopate
