// Runs code that draws random numbers with each instruction set that this processor has.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/random.hpp"

namespace syncopate {

inline void with_each_instruction_set(const std::function<void(const std::string&)>& body) {
  const std::vector<std::pair<InstructionSet, std::string>> sets = {
      {InstructionSet::scalar, "scalar"}, {InstructionSet::avx2, "AVX2"}, {InstructionSet::avx512, "AVX-512"}};
  const InstructionSet usual = instruction_set;
  for (const auto& [set, name] : sets) {
    if (set > usual) continue;
    instruction_set = set;
    body(name);
  }
  instruction_set = usual;
}

}  // namespace syncopate
