// What a file holds, compressed with gzip or not, piece by piece.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace syncopate {

// What is wrong with a compressed file, without its name.
struct GzipFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file may be several compressed ones in a row, as RFC 1952 has it, and then zeros up to its end; anything else after
// them is a fault, where other readers pass over it. A file whose first two bytes are not gzip's is not compressed, and
// passes unchanged.
class GzipStream {
 public:
  // `more` gives the file's next bytes, which stay until it is called again; none at the end.
  explicit GzipStream(std::function<std::string_view()> more);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Bytes read: fewer than asked for only at the end. Throws GzipFault.
  std::size_t read(char* out, std::size_t bytes);

 private:
  bool refill();
  std::size_t inflate_some(char* out, std::size_t bytes);
  void begin_next_member();

  std::function<std::string_view()> more_;
  std::string_view input_{};  // not yet read
  bool is_compressed_ = false;
  bool is_at_end_ = false;  // of all members
  z_stream stream_{};
};

}  // namespace syncopate
