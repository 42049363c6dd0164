#include "net/http_date.h"

#include "base/status.h"

namespace millrace {

std::optional<absl::Time> ParseHttpDate(std::string_view text) {
  absl::Time time;
  if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", ToAbsl(text), &time, nullptr)) return std::nullopt;
  return time;
}

}  // namespace millrace
