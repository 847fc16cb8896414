// An open file or directory of the system, for what streams cannot do: create it alone, put it on the disk.
#pragma once

#include <filesystem>
#include <string_view>

namespace syncopate {

// All throw std::filesystem::filesystem_error.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags);  // those of open()
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::string_view contents) const;
  // Some file systems cannot do so for directories (EINVAL), and need not.
  void sync() const;
  // Waits until no other process, or other Descriptor of this one, has the lock. It ends with this object, and with the
  // process however that ends. False where the file system has no locks of directories (NFS).
  bool lock() const;

 private:
  std::filesystem::path path_;
  int number_;
};

}  // namespace syncopate
