#include "shard/wds_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/number.h"

namespace millrace {

namespace {

constexpr std::string_view kWdsVersion = "v1.2 ";

// Takes the text up to the next `end`, and this.
std::string_view TakeUntil(std::string_view* text, char end) {
  const size_t at = text->find(end);
  const std::string_view taken = text->substr(0, at);
  text->remove_prefix(at == text->npos ? text->size() : at + 1);
  return taken;
}

// GNU tar writes other bytes as escapes, which begin with a backslash.
bool IsPlainName(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '\\'; });
}

// Returns the extension as wds2idx takes it from a name.
std::string_view ExtensionOf(std::string_view name) {
  const size_t dot = name.find('.', name.rfind('/') + 1);
  return dot == name.npos ? name : name.substr(dot + 1);
}

}  // namespace

absl::Status ForEachWdsMember(std::string_view text, absl::FunctionRef<absl::Status(const WdsMember&)> each) {
  if (!text.starts_with(kWdsVersion)) {
    return absl::InvalidArgumentError(text.starts_with("v1.1 ") || text.starts_with("v1.0 ")
                                          ? "it is of an older version of wds2idx, which has no names"
                                          : "it does not begin as wds2idx of version 1.2 does");
  }
  text.remove_prefix(kWdsVersion.size());
  const std::optional<uint64_t> samples = ParseNumber<uint64_t>(TakeUntil(&text, '\n'));
  if (!samples) return absl::InvalidArgumentError("its first line has no number of samples");
  uint64_t lines = 0;
  while (!text.empty()) {
    std::string_view line = TakeUntil(&text, '\n');
    ++lines;
    do {
      const std::string_view extension = TakeUntil(&line, ' ');
      const std::optional<uint64_t> offset = ParseNumber<uint64_t>(TakeUntil(&line, ' '));
      const std::optional<uint64_t> size = ParseNumber<uint64_t>(TakeUntil(&line, ' '));
      const std::string_view name = TakeUntil(&line, ' ');
      if (!offset || !size || !IsPlainName(name) || ExtensionOf(name) != extension) {
        return absl::InvalidArgumentError(fmt::format(
            "its line {} is not that of a sample, or has a name that it does not hold as it is", lines + 1));
      }
      RETURN_IF_ERROR(each({.name = name, .offset = *offset, .size = *size}));
    } while (!line.empty());
  }
  if (lines == *samples) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("it has {} samples, and should have {}", lines, *samples));
}

}  // namespace millrace
