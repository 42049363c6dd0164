#include "inspect/shown_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace millrace {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr std::string_view kEllipsis = "\xe2\x80\xa6";     // U+2026
constexpr size_t kMaxSequence = 4;                         // bytes of a UTF-8 sequence

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

// Returns the places where the characters of UTF-8 text begin, and its end.
std::vector<size_t> Boundaries(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(1, Utf8SequenceLength(text.substr(at))))
    starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

// Returns the largest number of characters, up to `most`, for which fits(number) is true; 0 if there is no such number.
size_t MostThatFit(size_t most, absl::FunctionRef<bool(size_t)> fits) {
  size_t low = 0;
  while (low < most) {
    const size_t middle = low + (most - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      most = middle - 1;
    }
  }
  return low;
}

// Returns the number of bytes of a paragraph that go into the line: at least one character.
size_t LineBytes(std::string_view paragraph, double width, TextWidth width_of) {
  const std::vector<size_t> starts = Boundaries(paragraph);
  const size_t characters = MostThatFit(starts.size() - 1, [&](size_t number) {
    return width_of(std::string(paragraph.substr(0, starts[number]))) <= width;
  });
  const size_t bytes = starts[std::max<size_t>(characters, 1)];
  if (bytes == paragraph.size() || paragraph[bytes] == ' ') return bytes;
  const size_t space = paragraph.rfind(' ', bytes - 1);
  return space == std::string_view::npos || space == 0 ? bytes : space;
}

}  // namespace

std::string ShownText(std::string_view bytes, size_t most_bytes) {
  std::string shown;
  size_t at = 0;
  while (at < bytes.size() && at < most_bytes) {
    const size_t length = Utf8SequenceLength(bytes.substr(at));
    if (length == 0) {
      shown += kReplacement;
    } else if (length == 1 && IsControl(bytes[at]) && bytes[at] != '\n') {
      shown += ' ';
    } else {
      shown += bytes.substr(at, length);
    }
    at += std::max<size_t>(length, 1);
  }
  if (at < bytes.size()) shown += kEllipsis;
  return shown;
}

bool LooksLikeText(std::string_view bytes, bool cut) {
  const size_t end = FirstNotUtf8(bytes);
  if (end < bytes.size() && (!cut || bytes.size() - end >= kMaxSequence)) return false;
  return std::none_of(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(end),
                      [](char c) { return IsControl(c) && c != '\n' && c != '\t' && c != '\r'; });
}

std::string FitText(const std::string& text, double width, CutEnd cut, TextWidth width_of) {
  if (width_of(text) <= width) return text;
  const std::vector<size_t> starts = Boundaries(text);
  const size_t all = starts.size() - 1;
  const auto part = [&](size_t characters) {
    return cut == CutEnd::kBack ? text.substr(0, starts[characters]) + std::string(kEllipsis)
                                : std::string(kEllipsis) + text.substr(starts[all - characters]);
  };
  return part(MostThatFit(all, [&](size_t characters) { return width_of(part(characters)) <= width; }));
}

std::vector<std::string> WrapText(std::string_view text, double width, size_t most_lines, TextWidth width_of) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < most_lines) {
    const size_t newline = text.find('\n');
    const std::string_view paragraph = text.substr(0, newline);
    const size_t bytes = paragraph.empty() ? 0 : LineBytes(paragraph, width, width_of);
    if (lines.size() + 1 == most_lines && bytes < text.size() && text.find_first_not_of(" \n", bytes) < text.size()) {
      std::string last(paragraph);
      if (bytes == paragraph.size()) last += kEllipsis;  // fits, but more follows
      lines.push_back(FitText(last, width, CutEnd::kBack, width_of));
      return lines;
    }
    lines.emplace_back(paragraph.substr(0, bytes));
    text.remove_prefix(bytes);
    if (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  }
  return lines;
}

}  // namespace millrace
