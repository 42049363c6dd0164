#include "service/host_list.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <utility>

namespace millrace {

namespace {

constexpr size_t kMostHosts = 65'536;
constexpr size_t kMostNameBytes = 255;  // of DNS

absl::Status NoHostList(std::string_view text) {
  return absl::InvalidArgumentError(
      fmt::format("\"{}\" is not a list of hosts; Slurm writes one as node[1-4,7],gpu2", text));
}

bool ToNumber(std::string_view text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// Expands "01-03", or "7", to the numbers as they are written, with zeros in front. Returns false if it is neither, or
// too many.
bool ExpandRange(std::string_view range, std::vector<std::string>* numbers) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == range.npos ? low : range.substr(dash + 1);
  uint64_t first = 0;
  uint64_t last = 0;
  if (!ToNumber(low, &first) || !ToNumber(high, &last) || last < first || last - first >= kMostHosts) return false;
  if (low.size() > kMostNameBytes) return false;
  for (uint64_t i = 0; i <= last - first; ++i) numbers->push_back(fmt::format("{:0{}}", first + i, low.size()));
  return numbers->size() <= kMostHosts;
}

// Returns whether all characters may be in a host's name; brackets are not among them.
bool IsPartOfName(std::string_view text) {
  for (const char c : text) {
    const bool is_name =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    if (!is_name) return false;
  }
  return true;
}

// Expands one entry of the list, with or without brackets. Returns false if the text is not an entry.
bool ExpandEntry(std::string_view entry, std::vector<std::string>* hosts) {
  std::vector<std::string> names = {""};
  while (!entry.empty()) {
    const size_t open = entry.find('[');
    const std::string_view plain = entry.substr(0, open);
    if (!IsPartOfName(plain)) return false;
    for (std::string& name : names) {
      if (name.size() + plain.size() > kMostNameBytes) return false;
      name += plain;
    }
    if (open == entry.npos) break;
    const size_t close = entry.find(']', open);
    if (close == entry.npos) return false;
    std::vector<std::string> numbers;
    for (const std::string_view range : SplitOutsideBrackets(entry.substr(open + 1, close - open - 1))) {
      if (!ExpandRange(range, &numbers)) return false;
    }
    if (names.size() * numbers.size() > kMostHosts) return false;
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) {
        if (name.size() + number.size() > kMostNameBytes) return false;
        longer.push_back(name + number);
      }
    }
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  for (std::string& name : names) {
    if (name.empty()) return false;
    hosts->push_back(std::move(name));
  }
  return hosts->size() <= kMostHosts;
}

}  // namespace

std::vector<std::string_view> SplitOutsideBrackets(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') ++depth;
    if (text[at] == ']') --depth;
    if (text[at] != ',' || depth > 0) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

absl::StatusOr<std::vector<std::string>> ExpandHostList(std::string_view text) {
  std::vector<std::string> hosts;
  for (const std::string_view entry : SplitOutsideBrackets(text)) {
    if (entry.empty() || !ExpandEntry(entry, &hosts)) return NoHostList(text);
  }
  return hosts;
}

}  // namespace millrace
