#include "net/proxy.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <initializer_list>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/crypto.h"
#include "base/number.h"

namespace millrace {

namespace {

constexpr uint16_t kDefaultProxyPort = 1080;  // curl's

using IpAddress = boost::asio::ip::address;

std::optional<IpAddress> ParseIpAddress(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  boost::system::error_code error;
  const IpAddress address = boost::asio::ip::make_address(std::string(text), error);
  return error ? std::nullopt : std::optional(address);
}

template <typename Bytes>
bool SharesBits(const Bytes& a, const Bytes& b, size_t bits) {
  for (size_t i = 0; i < bits; ++i) {
    const int mask = 0x80 >> (i % 8);
    if ((a[i / 8] & mask) != (b[i / 8] & mask)) return false;
  }
  return true;
}

/// Returns true if an address is in a network such as "10.0.0.0/8", or is that address.
bool LiesIn(const IpAddress& address, std::string_view network) {
  const size_t slash = std::min(network.find('/'), network.size());
  const std::optional<IpAddress> base = ParseIpAddress(network.substr(0, slash));
  if (!base || base->is_v4() != address.is_v4()) return false;
  const size_t all = address.is_v4() ? 32 : 128;
  size_t bits = all;
  if (slash < network.size()) {
    const std::optional<uint32_t> number = ParseNumber<uint32_t>(network.substr(slash + 1));
    if (!number || *number > all) return false;
    bits = *number;
  }
  return address.is_v4() ? SharesBits(address.to_v4().to_bytes(), base->to_v4().to_bytes(), bits)
                         : SharesBits(address.to_v6().to_bytes(), base->to_v6().to_bytes(), bits);
}

/// The services of a machine for its programs are there, and know no proxy.
bool IsLinkLocal(const IpAddress& address) {
  return LiesIn(address, "169.254.0.0/16") || LiesIn(address, "fe80::/10") || LiesIn(address, "fd00:ec2::/32");
}

std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    const std::optional<std::string> byte = escape ? HexDecode(text.substr(i + 1, 2)) : std::nullopt;
    out += byte ? *byte : std::string(1, text[i]);
    if (byte) i += 2;
  }
  return out;
}

/// Parses "[http://][user:password@]host[:port][/]".
absl::StatusOr<HttpProxy> ParseProxy(std::string_view url, const std::string& variable) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("{} {}; expected http://[user:password@]host[:port]", variable, why));
  };
  HttpProxy proxy{.server = {.port = kDefaultProxyPort}, .variable = variable};
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos) {
    if (absl::AsciiStrToLower(std::string(url.substr(0, scheme))) != "http")
      return refuse("names a proxy of another kind than http");
    url.remove_prefix(scheme + 3);
  }
  url = url.substr(0, std::min(url.rfind('@') == url.npos ? url.find('/') : url.find('/', url.rfind('@')), url.size()));
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    std::string user = Unescape(url.substr(0, at));
    if (url.substr(0, at).find(':') == std::string_view::npos) user += ':';  // as curl, with an empty password
    proxy.authorization = "Basic " + absl::Base64Escape(user);
    url.remove_prefix(at + 1);
  }
  size_t end = url.find(':');
  if (url.starts_with('[')) {
    end = url.find(']');
    if (end == std::string_view::npos) return refuse("has no ']'");
    proxy.server.host = url.substr(1, end - 1);
    ++end;
  } else {
    end = std::min(end, url.size());
    proxy.server.host = url.substr(0, end);
  }
  const bool plain = std::all_of(proxy.server.host.begin(), proxy.server.host.end(),
                                 [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
  if (proxy.server.host.empty() || !plain) return refuse("has no valid host name");
  if (end == url.size()) return proxy;
  const std::optional<uint16_t> port = ParseNumber<uint16_t>(url.substr(end + 1));
  if (url[end] != ':' || !port || *port == 0) return refuse("has no valid port");
  proxy.server.port = *port;
  return proxy;
}

}  // namespace

absl::StatusOr<HttpProxies> HttpProxies::Read(const std::function<std::string(const std::string&)>& variable) {
  const auto first = [&](std::initializer_list<const char*> names) -> absl::StatusOr<std::optional<HttpProxy>> {
    for (const char* name : names) {
      const std::string value = variable(name);
      if (value.empty()) continue;
      ASSIGN_OR_RETURN(HttpProxy proxy, ParseProxy(value, name));
      return std::optional(std::move(proxy));
    }
    return std::optional<HttpProxy>();
  };
  HttpProxies proxies;
  ASSIGN_OR_RETURN(proxies.for_https_, first({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}));
  const bool is_cgi = !variable("REQUEST_METHOD").empty();
  ASSIGN_OR_RETURN(proxies.for_http_, is_cgi ? first({"http_proxy", "all_proxy", "ALL_PROXY"})
                                             : first({"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}));
  std::string exceptions = variable("no_proxy");
  if (exceptions.empty()) exceptions = variable("NO_PROXY");
  absl::AsciiStrToLower(&exceptions);
  constexpr std::string_view kBetween = ", \t";
  for (size_t at = 0; (at = exceptions.find_first_not_of(kBetween, at)) != std::string::npos;) {
    const size_t end = std::min(exceptions.find_first_of(kBetween, at), exceptions.size());
    std::string_view name = std::string_view(exceptions).substr(at, end - at);
    at = end;
    if (name == "*") proxies.all_excepted_ = true;
    if (name.starts_with('.')) name.remove_prefix(1);
    if (name.ends_with('.')) name.remove_suffix(1);
    if (!name.empty()) proxies.excepted_.emplace_back(name);
  }
  return proxies;
}

bool HttpProxies::IsExcepted(std::string_view host) const {
  if (all_excepted_) return true;
  if (const std::optional<IpAddress> address = ParseIpAddress(host)) {
    return IsLinkLocal(*address) || std::any_of(excepted_.begin(), excepted_.end(),
                                                [&](const std::string& name) { return LiesIn(*address, name); });
  }
  std::string name = absl::AsciiStrToLower(std::string(host));
  if (name.ends_with('.')) name.pop_back();
  return std::any_of(excepted_.begin(), excepted_.end(), [&](const std::string& excepted) {
    return name == excepted || (name.ends_with(excepted) && name[name.size() - excepted.size() - 1] == '.');
  });
}

const HttpProxy* HttpProxies::For(const HttpEndpoint& server) const {
  const std::optional<HttpProxy>& proxy = server.tls ? for_https_ : for_http_;
  return !proxy || server.direct || IsExcepted(server.host) ? nullptr : &*proxy;
}

}  // namespace millrace
