// Which vector instructions draw random numbers and delays. Whichever do, the bits are the same.
#pragma once

namespace syncopate {

enum class InstructionSet { scalar, avx2, avx512 };

InstructionSet widest_instruction_set();  // that this processor has

// In use; tests set it to less than the widest.
extern InstructionSet instruction_set;

}  // namespace syncopate
