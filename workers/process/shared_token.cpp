#include "workers/process/shared_token.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace syncopate {

// With nobody who could write any more, an empty pipe is at its end: who comes later reads nothing.
SharedToken::SharedToken() {
  int ends[2];
  constexpr char token = 't';
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "a pipe");
  descriptor_ = ends[0];
  const bool is_there = write(ends[1], &token, 1) == 1;
  const int error = errno;
  close(ends[1]);
  if (is_there) return;
  close(ends[0]);
  throw std::system_error(error, std::generic_category(), "a pipe");
}

SharedToken::~SharedToken() { close(descriptor_); }

bool SharedToken::take() {
  char token = 0;
  while (true) {
    const ssize_t bytes = read(descriptor_, &token, 1);
    if (bytes >= 0 || errno != EINTR) return bytes == 1;
  }
}

}  // namespace syncopate
