#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// Holds HTTP header fields in order. Names compare without case. Plain data; all fields share one text, so that a head
/// costs two allocations and not two for each field. Views of it last until it is changed.
class HttpHeaders {
 public:
  using Field = std::pair<std::string_view, std::string_view>;  // name, value

  class Iterator {
   public:
    Iterator(const HttpHeaders& headers, size_t index) : headers_(headers), index_(index) {}
    Field operator*() const { return headers_[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const HttpHeaders& headers_;
    size_t index_;
  };

  void Add(std::string_view name, std::string_view value);
  /// Replaces every field of that name.
  void Set(std::string_view name, std::string_view value);
  /// Returns the first value, or nullopt.
  std::optional<std::string_view> Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name).has_value(); }
  void Remove(std::string_view name);
  /// Appends "NAME: VALUE" and an end of line for each.
  void AppendLines(std::string* to) const;
  /// Reserves room for so many fields of so many bytes in all.
  void Reserve(size_t fields, size_t bytes);

  Field operator[](size_t index) const;
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }
  size_t size() const { return places_.size(); }

 private:
  struct Place {
    size_t begin = 0;  // of the name in text_; the value follows
    size_t name = 0;   // bytes
    size_t value = 0;
  };

  std::string text_;
  std::vector<Place> places_;
};

/// Holds what a request says before its body. `target` is the request target as sent: an encoded path with its query.
struct HttpRequestHead {
  std::string method;
  std::string target;
  HttpHeaders headers;
};

struct HttpResponseHead {
  int status = 0;
  std::string reason;
  HttpHeaders headers;
  /// It is absent for chunked bodies and for those that end with the connection.
  std::optional<uint64_t> content_length;
};

/// Says where a server is and how to reach it.
struct HttpEndpoint {
  std::string host;  // a name or an address; IPv6 without brackets
  uint16_t port = 80;
  bool tls = false;
  bool direct = false;  // never through a proxy

  friend bool operator==(const HttpEndpoint&, const HttpEndpoint&) = default;
};

/// Returns "host:80", or "[::1]:80".
std::string HostAndPort(std::string_view host, uint16_t port);

/// Returns the value of the Host header: the port only when it is not the scheme's own, IPv6 in brackets.
std::string HostHeader(const HttpEndpoint& server);

}  // namespace millrace
