// What a collective is to the network.
#pragma once

namespace syncopate {

// all_reduce: everybody gets the sum. all_gather: everybody gets everybody's numbers. broadcast: everybody gets
// one member's vector. all_to_all: everybody gets a part of its own of everybody's vector, one of as many as members.
enum class Operation { all_reduce, all_gather, broadcast, all_to_all };

}  // namespace syncopate
