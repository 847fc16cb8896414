// Linked into every sanitized program, so that sanitizers can attribute reports to Open MPI.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

extern "C" {

// Keeps libraries loaded: at the end of the process a leak could not be attributed otherwise.
int dlclose(void*) { return 0; }

// Like the C library's function, but with a frame pointer, from which the sanitizer finds the caller.
int __asprintf_chk(char** text, int, const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  *text = length < 0 ? nullptr : static_cast<char*>(std::malloc(static_cast<std::size_t>(length) + 1));
  const int written =
      *text != nullptr ? std::vsnprintf(*text, static_cast<std::size_t>(length) + 1, format, again) : -1;
  va_end(again);
  return written;
}
}
