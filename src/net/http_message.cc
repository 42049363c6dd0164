#include "net/http_message.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace millrace {

namespace {

bool SameName(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(ToAbsl(a), ToAbsl(b));
}

}  // namespace

void HttpHeaders::Add(std::string_view name, std::string_view value) {
  places_.push_back({text_.size(), name.size(), value.size()});
  text_.append(name).append(value);
}

void HttpHeaders::Set(std::string_view name, std::string_view value) {
  Remove(name);
  Add(name, value);
}

HttpHeaders::Field HttpHeaders::operator[](size_t index) const {
  const Place& place = places_[index];
  const std::string_view field = std::string_view(text_).substr(place.begin, place.name + place.value);
  return {field.substr(0, place.name), field.substr(place.name)};
}

std::optional<std::string_view> HttpHeaders::Find(std::string_view name) const {
  for (const auto& [field, value] : *this) {
    if (SameName(field, name)) return value;
  }
  return std::nullopt;
}

// The text keeps what is removed: rare, and small.
void HttpHeaders::Remove(std::string_view name) {
  const auto has_name = [&](const Place& place) {
    return SameName(std::string_view(text_).substr(place.begin, place.name), name);
  };
  std::erase_if(places_, has_name);
}

void HttpHeaders::Reserve(size_t fields, size_t bytes) {
  places_.reserve(fields);
  text_.reserve(bytes);
}

std::string HostAndPort(std::string_view host, uint16_t port) {
  const bool ipv6 = host.find(':') != std::string_view::npos;
  return absl::StrCat(ipv6 ? "[" : "", ToAbsl(host), ipv6 ? "]" : "", ":", port);
}

std::string HostHeader(const HttpEndpoint& server) {
  std::string host = HostAndPort(server.host, server.port);
  if (server.port == (server.tls ? 443 : 80)) host.erase(host.rfind(':'));
  return host;
}

}  // namespace millrace
