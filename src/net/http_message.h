#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// HTTP header fields in order. Names compare without case. Plain data.
class HttpHeaders {
 public:
  using Field = std::pair<std::string, std::string>;

  void Add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  /// Replaces every field of that name.
  void Set(std::string_view name, std::string value);
  /// The first value, or nullopt.
  std::optional<std::string_view> Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name).has_value(); }
  void Remove(std::string_view name);

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }
  size_t size() const { return fields_.size(); }

 private:
  std::vector<Field> fields_;
};

/// What a request says before its body. `target` is the request target as sent: an encoded path with its query.
struct HttpRequestHead {
  std::string method;
  std::string target;
  HttpHeaders headers;
};

struct HttpResponseHead {
  int status = 0;
  std::string reason;
  HttpHeaders headers;
  /// Absent for chunked bodies and for those that end with the connection.
  std::optional<uint64_t> content_length;
};

/// Where a server is and how to reach it.
struct HttpEndpoint {
  std::string host;  // a name or an address; IPv6 without brackets
  uint16_t port = 80;
  bool tls = false;

  friend bool operator==(const HttpEndpoint&, const HttpEndpoint&) = default;
};

}  // namespace millrace
