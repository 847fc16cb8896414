#include "workers/base/arrays.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::int64_t most_elements = std::int64_t{1} << 40;

// Returns the text after a key of the header, which is a Python dictionary.
std::string_view value_of(std::string_view dictionary, std::string_view key) {
  const auto at = dictionary.find(fmt::format("'{}'", key));
  const auto colon = at == dictionary.npos ? at : dictionary.find(':', at);
  if (colon == dictionary.npos) throw NpyFault(fmt::format("its header has no '{}'", key));
  const std::string_view rest = dictionary.substr(colon + 1);
  const auto begin = rest.find_first_not_of(' ');
  return begin == rest.npos ? std::string_view() : rest.substr(begin);
}

std::string quoted(std::string_view value) {
  const auto end = value.size() > 1 && value[0] == '\'' ? value.find('\'', 1) : value.npos;
  if (end == value.npos) throw NpyFault("has records as elements; must have plain numbers");
  return std::string(value.substr(1, end - 1));
}

std::vector<std::int64_t> tuple(std::string_view value) {
  const auto end = value.find(')');
  if (value.empty() || value[0] != '(' || end == value.npos) throw NpyFault("its header has no shape");
  std::vector<std::int64_t> numbers;
  std::int64_t elements = 1;
  for (std::string_view rest = value.substr(1, end - 1);;) {
    const auto digit = rest.find_first_not_of(" ,");
    if (digit == rest.npos) return numbers;
    rest.remove_prefix(digit);
    std::int64_t number = 0;
    const auto [behind, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) throw NpyFault("its header has an invalid shape");
    if (number > 0 && elements > most_elements / number)
      throw NpyFault("its header declares more elements than a file can contain");
    elements *= number > 0 ? number : 1;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(behind - rest.data()));
  }
}

// The parts of a NumPy type string, such as "<f4": byte order, kind, bytes per element.
struct Letters {
  char order = 0, kind = 0;
  std::size_t bytes = 0;
};

Letters letters_of(std::string_view type) {
  Letters letters;
  if (type.size() < 2) return letters;
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(type.data() + 2, type.data() + type.size(), bytes);
  const bool is_object = type == "|O";
  if (!is_object && (error != std::errc() || end != type.data() + type.size())) return letters;
  return {.order = type[0], .kind = type[1], .bytes = bytes};
}

constexpr std::string_view kinds_of_numbers = "fiubc";
constexpr std::size_t widest = 32;  // a complex number of two 16-byte floats

std::size_t bytes_of(std::string_view type) {
  const Letters letters = letters_of(type);
  const bool is_number = kinds_of_numbers.find(letters.kind) != kinds_of_numbers.npos;
  return is_number && letters.bytes <= widest ? letters.bytes : 0;
}

std::string why_no_numbers(std::string_view type) {
  switch (letters_of(type).kind) {
    case 'O':
      return "contains Python objects ('|O'), probably because its rows differ in length; must contain numbers: pad "
             "the rows to one length, and save them with a.astype(\"<i8\") or a.astype(\"<f4\")";
    case 'U':
    case 'S':
      return fmt::format(
          "contains strings ('{}'); must contain numbers: number the classes from 0, for example with numpy.unique(a, "
          "return_inverse=True)[1]",
          type);
    case 'M':
    case 'm':
      return fmt::format("contains dates or times ('{}'); must contain numbers", type);
    default:
      return fmt::format("has elements of the unknown type '{}'; must contain numbers", type);
  }
}

std::string why_no_array(std::string_view bytes) {
  const std::string form = foreign_form(bytes);
  return fmt::format("is {}; must be a single, uncompressed array written by numpy.save",
                     form.empty() ? "not a NumPy array" : form);
}

std::size_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at]));
}

// Throws NpyFault for a faulty header and for an array in Fortran order.
NpyHeader npy_header(std::string_view bytes) {
  if (bytes.size() < 12 || !bytes.starts_with(magic)) throw NpyFault(why_no_array(bytes));
  const std::size_t version = byte_at(bytes, 6);
  if (version < 1 || version > 3)
    throw NpyFault(fmt::format("has version {} of NumPy's format; must be 1, 2 or 3", version));
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t length = byte_at(bytes, 8) + (byte_at(bytes, 9) << 8);
  if (version > 1) length += (byte_at(bytes, 10) << 16) + (byte_at(bytes, 11) << 24);
  if (bytes.size() < begin + length) throw NpyFault("ends within its header");
  const std::string_view dictionary = bytes.substr(begin, length);
  if (!value_of(dictionary, "fortran_order").starts_with("False"))
    throw NpyFault("is in Fortran order; must be in C order: save numpy.ascontiguousarray(a)");
  return {.type = quoted(value_of(dictionary, "descr")),
          .shape = tuple(value_of(dictionary, "shape")),
          .begin = begin + length};
}

static_assert(std::endian::native == std::endian::little, "the header declares this order");
constexpr std::string_view magic_with_version("\x93NUMPY\x01\x00", 8);
constexpr std::size_t before_header = magic_with_version.size() + 2;  // 2 bytes: the header's length
constexpr std::size_t alignment = 64;

// A memory-mapped file, as an entry of the list that the SIGBUS handler reads. The handler may run at any time, so
// entries are never removed. A later mapping of the same file reuses a free entry.
struct Mapping {
  const std::string file;
  const std::string fault;  // what the handler writes
  Mapping* const next;
  std::atomic<const char*> begin{nullptr};  // null: the entry is free
  std::atomic<std::size_t> size{0};
};
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<std::size_t>::is_always_lock_free &&
                  std::atomic<Mapping*>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::atomic<Mapping*> mappings{nullptr};
struct sigaction action_before = {};  // the action for SIGBUS that on_bus_error has replaced

// The kernel sends SIGBUS to a thread that reads a part of a mapped file that is no longer there.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const bool is_of_kernel = info->si_code > 0;
  const auto* const address = static_cast<const char*>(info->si_addr);
  for (const Mapping* one = mappings.load(); is_of_kernel && one; one = one->next) {
    const char* const begin = one->begin.load();
    if (!begin || address < begin || address >= begin + one->size.load()) continue;
    [[maybe_unused]] const auto written = write(STDERR_FILENO, one->fault.data(), one->fault.size());
    _exit(exit_failure);
  }
  sigaction(signal, &action_before, nullptr);  // the read is repeated, so the signal comes again
  if (!is_of_kernel) raise(signal);
}

// Lists a mapped file for the handler, and installs the handler.
Mapping& list_mapping(const std::filesystem::path& file, const char* begin, std::size_t size) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, &action_before) == 0;
  }();
  (void)installed;
  Mapping* entry = mappings.load();
  while (entry && (entry->begin.load() || entry->file != file.string())) entry = entry->next;
  if (!entry) {
    const std::string fault = fmt::format(
        "{}syncopate: {}: became shorter while it was being read, or its disk failed; must not change during a run\n",
        isatty(STDERR_FILENO) ? "\n" : "", printable(file.string()));  // on a terminal a progress line may be open
    entry = new Mapping{.file = file.string(), .fault = fault, .next = mappings.load()};
    mappings.store(entry);
  }
  entry->size.store(size);
  entry->begin.store(begin);
  return *entry;
}

}  // namespace

std::string described_type(std::string_view type) {
  const Letters letters = letters_of(type);
  static const std::map<char, std::string_view> names = {
      {'f', "float"}, {'i', "int"}, {'u', "uint"}, {'b', "bool"}, {'c', "complex"}};
  const auto name = names.find(letters.kind);
  if (name == names.end()) return fmt::format("'{}'", type);
  const std::string bits = letters.kind == 'b' ? "" : std::to_string(8 * letters.bytes);
  return fmt::format("{}{}{} ('{}')", name->second, bits, letters.order == '>' ? " in big-endian order" : "", type);
}

std::string way_to_save(const std::filesystem::path& file, std::string_view as) {
  return fmt::format("numpy.save(\"{}\", a.astype(\"{}\"))", file.filename().string(), as);
}

MappedFile map_file(const std::filesystem::path& file) {
  const int opened = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not block
  if (opened < 0) throw std::system_error(errno, std::generic_category());
  struct stat status {};
  fstat(opened, &status);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size == 0) {
    close(opened);
    throw NpyFault(S_ISREG(status.st_mode) ? "is empty" : "is not a regular file");
  }
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened, 0);
  const int error = errno;
  close(opened);
  if (mapped == MAP_FAILED) throw std::system_error(error, std::generic_category());
  Mapping& listed = list_mapping(file, static_cast<const char*>(mapped), size);
  return {.bytes = std::shared_ptr<const char>(static_cast<const char*>(mapped),
                                               [size, &listed](const char* begin) {
                                                 listed.begin.store(nullptr);
                                                 munmap(const_cast<char*>(begin), size);
                                               }),
          .size = size};
}

NpyArray::NpyArray(const std::filesystem::path& file) {
  auto [bytes, size] = map_file(file);
  bytes_ = std::move(bytes);
  header_ = npy_header({bytes_.get(), size});
  const std::size_t each = bytes_of(header_.type);
  if (each == 0) throw NpyFault(why_no_numbers(header_.type));
  std::size_t declared = each;
  for (const std::int64_t extent : header_.shape) declared *= static_cast<std::size_t>(extent);
  declared += header_.begin;
  if (size != declared)
    throw NpyFault(fmt::format("has {} bytes; its header declares {}{}", size, declared,
                               size < declared ? ": the file is truncated" : ""));
  if (header_.begin % each != 0) throw NpyFault("has elements that are not aligned; save it again with numpy.save");
}

std::string npy(const std::vector<std::vector<float>>& vectors) {
  const std::size_t size = vectors.empty() ? 0 : vectors.front().size();
  const std::string shape =
      vectors.size() == 1 ? fmt::format("({},)", size) : fmt::format("({}, {})", vectors.size(), size);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape);
  // Blanks and a line feed pad the header, so that the data begin at a multiple of 64 bytes.
  header.append(alignment - 1 - (before_header + header.size()) % alignment, ' ');
  header += '\n';
  std::string bytes(magic_with_version);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  for (const std::vector<float>& vector : vectors) {
    if (vector.size() != size) throw std::invalid_argument("the rows of an array must have equal sizes");
    bytes.append(reinterpret_cast<const char*>(vector.data()), size * sizeof(float));
  }
  return bytes;
}

std::vector<float> floats_from_npy(std::string_view bytes) {
  const NpyHeader header = npy_header(bytes);
  bytes.remove_prefix(header.begin);
  if (header.type != "<f4" || bytes.size() % sizeof(float) != 0) throw NpyFault("is not an array of float32");
  std::vector<float> floats(bytes.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

}  // namespace syncopate
