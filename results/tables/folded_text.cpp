#include "results/tables/folded_text.hpp"

#include <algorithm>

#include "results/tables/text_table.hpp"

namespace syncopate {
namespace {

// Where the text's first `count` characters of UTF-8 end.
std::size_t end_of(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (; end < text.size(); ++end)
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && count-- == 0) break;
  return end;
}

}  // namespace

std::vector<std::string> folded(std::string_view line, std::size_t width, std::size_t indent, LongWords long_words) {
  std::vector<std::string> lines;
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  std::string current(line.substr(0, first));
  bool is_begun = false;
  for (std::size_t begin = first; begin <= line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    if (is_begun && display_width(current) + 1 + display_width(word) > width) {
      lines.push_back(current);
      current.assign(indent, ' ');
      is_begun = false;
    }
    if (is_begun) current += ' ';
    current += word;
    is_begun = true;
    while (long_words == LongWords::cut && width > indent && display_width(current) > width) {
      const std::size_t cut = end_of(current, width);
      lines.push_back(current.substr(0, cut));
      current = std::string(indent, ' ') + current.substr(cut);
    }
    begin = end + 1;
  }
  lines.push_back(std::move(current));
  return lines;
}

std::string fold_lines(const std::string& text, std::size_t width, std::size_t indent) {
  if (width == 0) return text;
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    for (const std::string& line :
         folded(std::string_view(text).substr(begin, end - begin), width, indent, LongWords::whole))
      result += line + "\n";
    begin = end + 1;
  }
  if (!text.empty() && text.back() != '\n') result.pop_back();
  return result;
}

}  // namespace syncopate
