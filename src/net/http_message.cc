#include "net/http_message.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace millrace {

namespace {

bool SameName(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;  // nearly always: so it is asked first, and here
  return a == b || absl::EqualsIgnoreCase(ToAbsl(a), ToAbsl(b));
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
  const char* const name = text_.data() + place.begin;
  return {{name, place.name}, {name + place.name, place.value}};
}

std::optional<std::string_view> HttpHeaders::Find(std::string_view name) const {
  const char* const text = text_.data();
  for (const Place& place : places_) {
    if (SameName({text + place.begin, place.name}, name)) {
      return std::string_view(text + place.begin + place.name, place.value);
    }
  }
  return std::nullopt;
}

// The text keeps what is removed: rare, and small.
void HttpHeaders::Remove(std::string_view name) {
  const char* const text = text_.data();
  const auto has_name = [&](const Place& place) { return SameName({text + place.begin, place.name}, name); };
  std::erase_if(places_, has_name);
}

void HttpHeaders::AppendLines(std::string* to) const {
  constexpr std::string_view kColon = ": ";
  constexpr std::string_view kEnd = "\r\n";
  size_t size = to->size();
  size_t bytes = size;
  for (const Place& place : places_) bytes += place.name + kColon.size() + place.value + kEnd.size();
  to->resize(bytes);
  const auto put = [&](const char* from, size_t length) {
    std::memcpy(to->data() + size, from, length);
    size += length;
  };
  for (const Place& place : places_) {
    const char* const name = text_.data() + place.begin;
    put(name, place.name);
    put(kColon.data(), kColon.size());
    put(name + place.name, place.value);
    put(kEnd.data(), kEnd.size());
  }
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
  if (server.port != (server.tls ? 443 : 80)) return HostAndPort(server.host, server.port);
  return server.host.find(':') != std::string::npos ? absl::StrCat("[", server.host, "]") : server.host;
}

}  // namespace millrace
