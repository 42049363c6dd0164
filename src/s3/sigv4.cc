#include "s3/sigv4.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/crypto.h"
#include "base/hex.h"

namespace millrace {

namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

bool Unreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

/// Leading and trailing spaces go, runs of spaces become one.
void AppendTrimmed(std::string& out, std::string_view value) {
  bool pending_space = false;
  bool started = false;
  for (const char c : value) {
    if (c == ' ' || c == '\t') {
      pending_space = started;
      continue;
    }
    if (pending_space) out.push_back(' ');
    pending_space = false;
    started = true;
    out.push_back(c);
  }
}

/// Normalises the escapes of one component of a query: what is decodable is decoded and encoded as SigV4 wants.
std::string CanonicalComponent(std::string_view component) {
  const std::optional<std::string> decoded = UriDecode(component);
  return decoded ? UriEncode(*decoded, /*keep_slash=*/false) : std::string(component);
}

std::string CanonicalQuery(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    parameters.emplace_back(CanonicalComponent(item.substr(0, equals)), CanonicalComponent(value));
  }
  std::sort(parameters.begin(), parameters.end());
  std::string out;
  for (const auto& [name, value] : parameters) {
    if (!out.empty()) out.push_back('&');
    out.append(name).append("=").append(value);
  }
  return out;
}

constexpr size_t kDateLength = 8;  // of what AmzDate gives

std::string ScopeText(std::string_view amz_date, const SigV4Scope& scope) {
  return fmt::format(FMT_COMPILE("{}/{}/{}/aws4_request"), amz_date.substr(0, kDateLength), scope.region,
                     scope.service);
}

ByteSpan Bytes(const Sha256Digest& digest) {
  return std::as_bytes(std::span(digest));
}

/// Fields that user agents and proxies add or change on the way.
bool LeftUnsigned(std::string_view name) {
  constexpr std::array<std::string_view, 6> kUnsigned = {"authorization", "user-agent",        "connection",
                                                         "expect",        "transfer-encoding", "x-amzn-trace-id"};
  return std::find(kUnsigned.begin(), kUnsigned.end(), name) != kUnsigned.end();
}

}  // namespace

std::string UriEncode(std::string_view raw, bool keep_slash) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  out.reserve(raw.size() + raw.size() / 4);
  for (const char c : raw) {
    if (Unreserved(c) || (c == '/' && keep_slash)) {
      out.push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

std::optional<std::string> UriDecode(std::string_view encoded) {
  std::string out;
  out.reserve(encoded.size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      out.push_back(encoded[i]);
      continue;
    }
    if (i + 2 >= encoded.size()) return std::nullopt;
    const int high = HexValue(encoded[i + 1]);
    const int low = HexValue(encoded[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

std::optional<std::vector<std::pair<std::string, std::string>>> ParseQuery(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    std::optional<std::string> name = UriDecode(item.substr(0, equals));
    std::optional<std::string> value =
        UriDecode(equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1));
    if (!name || !value) return std::nullopt;
    parameters.emplace_back(*std::move(name), *std::move(value));
  }
  return parameters;
}

std::string CanonicalRequest(std::string_view method, std::string_view target, const HttpHeaders& headers,
                             const std::vector<std::string>& signed_headers, std::string_view payload_hash) {
  const size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  const std::string_view query = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  std::string out;
  out.reserve(512);
  out.append(method)
      .append("\n")
      .append(path.empty() ? "/" : path)
      .append("\n")
      .append(CanonicalQuery(query))
      .append("\n");
  for (const std::string& name : signed_headers) {
    out.append(name).append(":");
    bool first = true;
    for (const auto& [field, value] : headers) {
      if (!absl::EqualsIgnoreCase(field, name)) continue;
      if (!first) out.push_back(',');
      first = false;
      AppendTrimmed(out, value);
    }
    out.append("\n");
  }
  out.append("\n");
  for (size_t i = 0; i < signed_headers.size(); ++i) out.append(i > 0 ? ";" : "").append(signed_headers[i]);
  out.append("\n").append(payload_hash);
  return out;
}

namespace {

Sha256Digest SigningKey(const std::string& secret, std::string_view date, const SigV4Scope& scope) {
  const Sha256Digest date_key = HmacSha256(AsBytes(secret), AsBytes(date));
  const Sha256Digest region_key = HmacSha256(Bytes(date_key), AsBytes(scope.region));
  const Sha256Digest service_key = HmacSha256(Bytes(region_key), AsBytes(scope.service));
  return HmacSha256(Bytes(service_key), AsBytes("aws4_request"));
}

// The key of a secret, day and place signs all their requests: each thread keeps the last.
Sha256Digest CachedSigningKey(std::string_view secret_key, std::string_view date, const SigV4Scope& scope) {
  struct Last {
    std::string secret, date;
    SigV4Scope scope;
    Sha256Digest key{};
  };
  thread_local Last last;
  const std::string secret = fmt::format("AWS4{}", secret_key);
  if (last.secret != secret || last.date != date || last.scope != scope) {
    last = {secret, std::string(date), scope, SigningKey(secret, date, scope)};
  }
  return last.key;
}

std::string StringToSign(std::string_view canonical_request, std::string_view amz_date, std::string_view scope_text) {
  return fmt::format(FMT_COMPILE("{}\n{}\n{}\n{}"), kAlgorithm, amz_date, scope_text,
                     HexEncode(Sha256(AsBytes(canonical_request))));
}

std::string Signature(std::string_view string_to_sign, std::string_view secret_key, std::string_view amz_date,
                      const SigV4Scope& scope) {
  const Sha256Digest key = CachedSigningKey(secret_key, amz_date.substr(0, kDateLength), scope);
  return HexEncode(HmacSha256(Bytes(key), AsBytes(string_to_sign)));
}

}  // namespace

std::string StringToSign(std::string_view canonical_request, absl::Time time, const SigV4Scope& scope) {
  const std::string amz_date = AmzDate(time);
  return StringToSign(canonical_request, amz_date, ScopeText(amz_date, scope));
}

std::string Signature(std::string_view string_to_sign, std::string_view secret_key, absl::Time time,
                      const SigV4Scope& scope) {
  return Signature(string_to_sign, secret_key, AmzDate(time), scope);
}

void SignRequest(HttpRequestHead& request, std::string_view payload_hash, const Credentials& credentials,
                 const SigV4Scope& scope, absl::Time time) {
  const std::string amz_date = AmzDate(time);
  const std::string scope_text = ScopeText(amz_date, scope);
  request.headers.Set("x-amz-date", amz_date);
  request.headers.Set("x-amz-content-sha256", std::string(payload_hash));
  if (!credentials.session_token.empty()) request.headers.Set("x-amz-security-token", credentials.session_token);
  std::vector<std::string> names;
  names.reserve(request.headers.size());
  for (const auto& [field, value] : request.headers) {
    std::string name = absl::AsciiStrToLower(field);
    if (!LeftUnsigned(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const std::string canonical = CanonicalRequest(request.method, request.target, request.headers, names, payload_hash);
  const std::string signature =
      Signature(StringToSign(canonical, amz_date, scope_text), credentials.secret_key, amz_date, scope);
  request.headers.Set("Authorization",
                      fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                                  credentials.access_key, scope_text, fmt::join(names, ";"), signature));
}

std::string AmzDate(absl::Time time) {
  const absl::CivilSecond t = absl::ToCivilSecond(time, absl::UTCTimeZone());
  return fmt::format(FMT_COMPILE("{:04}{:02}{:02}T{:02}{:02}{:02}Z"), t.year(), t.month(), t.day(), t.hour(),
                     t.minute(), t.second());
}

}  // namespace millrace
