#include "workers/process/instruction_set.hpp"

namespace syncopate {

InstructionSet widest_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return InstructionSet::avx512;
  if (__builtin_cpu_supports("avx2")) return InstructionSet::avx2;
#endif
  return InstructionSet::scalar;
}

InstructionSet instruction_set = widest_instruction_set();

}  // namespace syncopate
