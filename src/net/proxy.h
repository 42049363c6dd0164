#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/http_message.h"

/// Reads the proxies of the environment as curl does. Pure.

namespace millrace {

/// Describes a server that passes requests on, and to which clients speak plain HTTP.
struct HttpProxy {
  HttpEndpoint server;
  std::string authorization;  // the value of Proxy-Authorization, which is secret; "" = none
  std::string variable;       // that names it, for messages
};

/// Decides which requests use which proxy. Plain data.
class HttpProxies {
 public:
  /// Reads those of https_proxy, http_proxy, all_proxy and no_proxy, which may also be written in capitals. HTTP_PROXY
  /// does not count in a CGI program, where a client could set it. InvalidArgument names the variable whose value is
  /// not a URL of an http:// proxy, but not the value, which may contain a password.
  static absl::StatusOr<HttpProxies> Read(const std::function<std::string(const std::string&)>& variable);

  /// nullptr: the server is asked itself. So it is with endpoints that are `direct`, and on link-local addresses.
  const HttpProxy* For(const HttpEndpoint& server) const;

 private:
  bool IsExcepted(std::string_view host) const;

  std::optional<HttpProxy> for_https_;
  std::optional<HttpProxy> for_http_;
  std::vector<std::string> excepted_;  // in lower case, without dots around them
  bool all_excepted_ = false;
};

}  // namespace millrace
