#include "service/worker_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "base/file_text.h"

namespace millrace {

absl::StatusOr<std::string> ReadWorkerToken(const std::string& path) {
  constexpr size_t kLeast = 16;
  constexpr size_t kMost = 1024;
  if (path.empty()) return std::string();
  const absl::StatusOr<std::string> text = ReadFileText(path, kMost + 16);
  if (!text.ok()) return absl::NotFoundError(fmt::format("the token file {} cannot be read", path));
  const absl::string_view token = absl::StripAsciiWhitespace(*text);
  const bool is_plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (token.size() < kLeast || token.size() > kMost || !is_plain) {
    return absl::InvalidArgumentError(fmt::format(
        "the token file {} must hold one secret of {} to {} printable characters without blanks; make one with "
        "'openssl rand -hex 32'",
        path, kLeast, kMost));
  }
  return std::string(token);
}

}  // namespace millrace
