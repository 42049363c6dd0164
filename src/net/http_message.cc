#include "net/http_message.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/status.h"

namespace millrace {

namespace {

bool SameName(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(ToAbsl(a), ToAbsl(b));
}

}  // namespace

void HttpHeaders::Set(std::string_view name, std::string value) {
  Remove(name);
  fields_.emplace_back(std::string(name), std::move(value));
}

std::optional<std::string_view> HttpHeaders::Find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (SameName(field.first, name)) return field.second;
  }
  return std::nullopt;
}

void HttpHeaders::Remove(std::string_view name) {
  std::erase_if(fields_, [name](const Field& field) { return SameName(field.first, name); });
}

}  // namespace millrace
