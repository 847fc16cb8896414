// What the program says, on standard output and standard error. What cannot be written is remembered and never
// thrown: results matter more than messages, so the work goes on, and the program's end reports the loss.
#pragma once

#include <atomic>
#include <string_view>

namespace syncopate {

class Output {
 public:
  constexpr Output(int descriptor, const char* name) : descriptor_(descriptor), name_(name) {}

  // All of the text, at once and unbuffered; any thread may call it.
  void write(std::string_view text);
  // The system's number of the first error; 0: nothing has been lost.
  int error() const { return error_; }
  const char* name() const { return name_; }

 private:
  int descriptor_;
  const char* name_;
  std::atomic<int> error_{0};
};

inline Output standard_output{1, "standard output"};
inline Output standard_error{2, "standard error"};

// Call it first in main. A standard stream that is closed stays one that cannot be written, where the next file to be
// opened would have taken its number and got the messages; a reader that goes away is an error of its stream, where it
// would have ended the program.
void guard_standard_streams();

// `status`, or 1 instead of 0 where output was lost, which is said on the other stream.
int report_lost_output(int status);

}  // namespace syncopate
