#define XXH_INLINE_ALL

#include "results/checkpoint_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace syncopate {

namespace fs = std::filesystem;
namespace {

constexpr std::string_view checkpoint_ending = ".checkpoint";
constexpr std::string_view magic = "SYNCKPT\n";
constexpr std::uint64_t format = 1;
constexpr std::size_t piece = 1 << 20;

void check_identity(StateArchive in, const CheckpointIdentity& identity) {
  std::uint64_t its_format = 0, names = 0;
  in(its_format, names);
  if (its_format != format || names != identity.size()) throw CheckpointFault("another version of Syncopate wrote it");
  for (const auto& [name, own] : identity) {
    std::string its_name, its;
    in(its_name, its);
    if (its_name != name) throw CheckpointFault("another version of Syncopate wrote it");
    if (its != own) throw CheckpointFault(fmt::format("its {} is {}, not {}", name, its, own));
  }
}

}  // namespace

struct CheckpointWriter::Digest {
  XXH3_state_t state;
};

CheckpointWriter::CheckpointWriter(fs::path file, const CheckpointIdentity& identity, const fs::path& below)
    : file_(std::move(file)), aside_(hidden_sibling(file_, partial_kind)), digest_(std::make_unique<Digest>()) {
  if (!below.empty()) require_there(below);
  fs::create_directories(file_.parent_path());
  XXH3_64bits_reset(&digest_->state);
  buffer_.reserve(piece);
  {
    const auto held = hold_off_end();
    std::error_code ignored;
    fs::remove(aside_, ignored);  // an earlier attempt of this process may have left it
    descriptor_ = std::make_unique<Descriptor>(aside_, O_WRONLY | O_CREAT | O_EXCL);
  }
  write(magic.data(), magic.size());
  StateArchive archive(*this);
  std::uint64_t its_format = format, names = identity.size();
  archive(its_format, names);
  for (auto [name, text] : identity) archive(name, text);
}

CheckpointWriter::~CheckpointWriter() {
  if (is_published_) return;
  std::error_code ignored;
  fs::remove(aside_, ignored);
}

void CheckpointWriter::write(const void* data, std::size_t size) {
  XXH3_64bits_update(&digest_->state, data, size);
  const auto* bytes = static_cast<const char*>(data);
  if (buffer_.size() + size > piece) flush();
  if (size > piece)
    descriptor_->write({bytes, size});
  else
    buffer_.append(bytes, size);
}

void CheckpointWriter::flush() {
  descriptor_->write(buffer_);
  buffer_.clear();
}

void CheckpointWriter::finish() {
  finished_digest_ = XXH3_64bits_digest(&digest_->state);
  write(&finished_digest_, sizeof(finished_digest_));
  flush();
}

void CheckpointWriter::publish() {
  descriptor_->sync();
  {
    const auto held = hold_off_end();
    fs::rename(aside_, file_);
    is_published_ = true;
  }
  Descriptor(file_.parent_path(), O_RDONLY | O_DIRECTORY).sync();
}

CheckpointReader::CheckpointReader(const fs::path& file, const CheckpointIdentity& identity) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw CheckpointFault("it is not a regular file");  // to open a pipe would wait
  stream_.open(file, std::ios::binary);
  const auto size = fs::file_size(file, error);
  std::uint64_t written = 0;
  if (error || !stream_) throw CheckpointFault("it cannot be read");
  if (size < magic.size() + sizeof(format) + sizeof(written)) throw CheckpointFault("it is cut off");
  left_ = size - sizeof(written);

  XXH3_state_t digest;
  XXH3_64bits_reset(&digest);
  std::string buffer(piece, '\0');
  for (std::uint64_t left = left_; left > 0;) {
    const std::size_t next = std::min<std::uint64_t>(left, piece);
    if (!stream_.read(buffer.data(), static_cast<std::streamsize>(next))) throw CheckpointFault("it cannot be read");
    XXH3_64bits_update(&digest, buffer.data(), next);
    left -= next;
  }
  stream_.read(reinterpret_cast<char*>(&written), sizeof(written));
  digest_ = written;
  stream_.seekg(0);
  if (!stream_) throw CheckpointFault("it cannot be read");

  std::string begin(magic.size(), '\0');
  read(begin.data(), begin.size());
  if (begin != magic) throw CheckpointFault("it is not a checkpoint of Syncopate");
  if (written != XXH3_64bits_digest(&digest)) throw CheckpointFault("it is damaged or cut off");
  check_identity(StateArchive(*this), identity);
}

void CheckpointReader::read(void* data, std::size_t size) {
  if (size > left_) throw CheckpointFault("it ends too early");
  if (!stream_.read(static_cast<char*>(data), static_cast<std::streamsize>(size)))
    throw CheckpointFault("it cannot be read");
  left_ -= size;
}

fs::path checkpoint_of(const fs::path& run_directory) { return fs::path(run_directory) += checkpoint_ending; }

fs::path part_of_checkpoint(const fs::path& file, std::int64_t number, int rank) {
  return fs::path(file) += fmt::format(".{}.{}", number, rank);
}

bool has_parts(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::any_of(paths_in(folder, ignored), [](const fs::path& path) {
    return path.filename().string().find(std::string(checkpoint_ending) + ".") != std::string::npos;
  });
}

void remove_parts(const fs::path& file, std::int64_t last, std::int64_t but) {
  const std::string begin = file.filename().string() + ".";
  std::error_code ignored;
  for (const fs::path& path : paths_in(file.parent_path(), ignored)) {
    const std::string name = path.filename().string();
    std::int64_t number = 0;
    if (!name.starts_with(begin)) continue;
    const auto [rest, error] = std::from_chars(name.data() + begin.size(), name.data() + name.size(), number);
    if (error == std::errc{} && *rest == '.' && number <= last && number != but) fs::remove(path, ignored);
  }
}

void remove_checkpoint(const fs::path& file) {
  std::error_code ignored;
  fs::remove(file, ignored);
  remove_parts(file, std::numeric_limits<std::int64_t>::max());
}

}  // namespace syncopate
