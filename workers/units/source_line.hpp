// A line of a source file: what std::source_location tells, which clang 14 lacks with GCC 12's library.
#pragma once

namespace syncopate {

class SourceLine {
 public:
  constexpr SourceLine() = default;
  // Of the call; as a default argument, of the call that leaves it out.
  static constexpr SourceLine current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }

  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr SourceLine(const char* file, unsigned line) : file_(file), line_(line) {}

  const char* file_ = "";
  unsigned line_ = 0;
};

}  // namespace syncopate
