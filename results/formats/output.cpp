#include "results/formats/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <system_error>
#include <utility>

namespace syncopate {

void Output::write(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(descriptor_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // somebody who shares the terminal or pipe has made it non-blocking
      pollfd waited{.fd = descriptor_, .events = POLLOUT, .revents = 0};
      poll(&waited, 1, -1);
    } else if (errno != EINTR) {
      int none = 0;
      error_.compare_exchange_strong(none, errno);
      return;
    }
  }
}

void guard_standard_streams() {
  // For reading alone, so that writing stays an error. The lowest free number is the closed stream's: they go upwards.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) cannot be written, as on a full disk
}

int report_lost_output(int status) {
  bool lost = false;
  for (const auto& [stream, other] :
       {std::pair(&standard_output, &standard_error), std::pair(&standard_error, &standard_output)}) {
    if (stream->error() == 0) continue;
    lost = true;
    other->write(fmt::format("syncopate: {} could not be written: {}\n", stream->name(),
                             std::generic_category().message(stream->error())));
  }
  return lost && status == 0 ? 1 : status;
}

}  // namespace syncopate
