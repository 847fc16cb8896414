// A text file, line by line.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace syncopate {

// Calls `line` with each line, without its end (\n or \r\n), and with its place, "FILE:LINE". Throws DataFault for a
// file that cannot be read, is empty, or is not UTF-8; of another encoding that is known by its bytes it says which.
void for_each_line(const std::filesystem::path& file,
                   const std::function<void(std::string_view line, const std::string& place)>& line);

}  // namespace syncopate
