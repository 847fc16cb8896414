// A token that one alone of this process and its children can take: a pipe that holds one byte, as that of make's
// jobserver.
#pragma once

namespace syncopate {

class SharedToken {
 public:
  // Nobody has it. Children inherit it, also other programs. Throws std::system_error.
  SharedToken();
  // That of the process which started this one, by its number there.
  explicit SharedToken(int descriptor) : descriptor_(descriptor) {}
  ~SharedToken();
  SharedToken(const SharedToken&) = delete;
  SharedToken& operator=(const SharedToken&) = delete;

  // True for the first who asks. Never waits.
  bool take();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace syncopate
