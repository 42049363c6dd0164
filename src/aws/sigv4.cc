#include "aws/sigv4.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/hex.h"
#include "base/hmac_key.h"

namespace millrace {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

constexpr std::array<bool, 256> MakeUnreserved() {
  std::array<bool, 256> unreserved{};
  for (const char c : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"sv) {
    unreserved[static_cast<unsigned char>(c)] = true;
  }
  return unreserved;
}
constexpr std::array<bool, 256> kUnreserved = MakeUnreserved();

/// Leading and trailing spaces go, runs of spaces become one.
void AppendTrimmed(std::string& out, std::string_view value) {
  if (value.find(' ') == value.npos && value.find('\t') == value.npos) {
    out.append(value);
    return;
  }
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
  return absl::StrCat(ToAbsl(amz_date.substr(0, kDateLength)), "/", scope.region, "/", scope.service, "/aws4_request");
}

ByteSpan Bytes(const Sha256Digest& digest) {
  return std::as_bytes(std::span(digest));
}

/// Returns true for fields that user agents and proxies add or change on the way.
bool LeftUnsigned(std::string_view name) {
  constexpr std::array<std::string_view, 6> kUnsigned = {"authorization", "user-agent",        "connection",
                                                         "expect",        "transfer-encoding", "x-amzn-trace-id"};
  return std::find(kUnsigned.begin(), kUnsigned.end(), name) != kUnsigned.end();
}

// Appends "host;range;x-amz-date", each once.
void AppendNames(std::string& out, std::span<const HttpHeaders::Field> fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0 && fields[i].first == fields[i - 1].first) continue;
    if (i > 0) out.push_back(';');
    out.append(fields[i].first);
  }
}

// The fields are in order of their names, which are in lower case; `names` is what AppendNames makes of them. The
// values of one name are joined.
void AppendCanonical(std::string* to, std::string_view method, std::string_view target,
                     std::span<const HttpHeaders::Field> fields, std::string_view names,
                     std::string_view payload_hash) {
  const size_t question = target.find('?');
  const std::string_view path = target.substr(0, question);
  const std::string_view query = question == std::string_view::npos ? std::string_view() : target.substr(question + 1);
  std::string& out = *to;
  out.append(method).append("\n"sv).append(path.empty() ? "/"sv : path).append("\n"sv);
  if (!query.empty()) out.append(CanonicalQuery(query));
  out.push_back('\n');
  const auto repeats = [&](size_t i) { return i > 0 && fields[i].first == fields[i - 1].first; };
  for (size_t i = 0; i < fields.size(); ++i) {
    if (repeats(i)) {
      out.back() = ',';  // of the line before
    } else {
      out.append(fields[i].first);
      out.push_back(':');
    }
    AppendTrimmed(out, fields[i].second);
    out.push_back('\n');
  }
  out.append("\n"sv).append(names).append("\n"sv).append(payload_hash);
}

}  // namespace

std::string UriEncode(std::string_view raw, bool keep_slash) {
  std::string out;
  AppendUriEncoded(&out, raw, keep_slash);
  return out;
}

void AppendUriEncoded(std::string* out, std::string_view raw, bool keep_slash) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto stays = [keep_slash](char c) {
    return kUnreserved[static_cast<unsigned char>(c)] || (c == '/' && keep_slash);
  };
  while (!raw.empty()) {
    const size_t plain = std::find_if_not(raw.begin(), raw.end(), stays) - raw.begin();
    out->append(raw.substr(0, plain));
    raw.remove_prefix(plain);
    if (raw.empty()) return;
    const auto byte = static_cast<unsigned char>(raw.front());
    const char escape[] = {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    out->append(escape, sizeof escape);
    raw.remove_prefix(1);
  }
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
  std::vector<HttpHeaders::Field> fields;
  for (const std::string& name : signed_headers) {
    const size_t before = fields.size();
    for (const auto& [field, value] : headers) {
      if (field.size() == name.size() && absl::EqualsIgnoreCase(ToAbsl(field), name)) fields.emplace_back(name, value);
    }
    if (fields.size() == before) fields.emplace_back(name, "");
  }
  std::string names;
  AppendNames(names, fields);
  std::string text;
  text.reserve(1024);
  AppendCanonical(&text, method, target, fields, names, payload_hash);
  return text;
}

namespace {

Sha256Digest SigningKey(const std::string& secret, std::string_view date, const SigV4Scope& scope) {
  const Sha256Digest date_key = HmacSha256(AsBytes(secret), AsBytes(date));
  const Sha256Digest region_key = HmacSha256(Bytes(date_key), AsBytes(scope.region));
  const Sha256Digest service_key = HmacSha256(Bytes(region_key), AsBytes(scope.service));
  return HmacSha256(Bytes(service_key), AsBytes("aws4_request"));
}

// Signs the requests of a secret and a place within one second. Each thread keeps the last.
struct Signer {
  std::string secret, amz_date;
  SigV4Scope scope;
  std::string scope_text;
  HmacKey key;        // of the day
  HmacKey canonical;  // signs the hash of a canonical request
};

std::string BeginToSign(std::string_view amz_date, std::string_view scope_text) {
  return absl::StrCat(ToAbsl(kAlgorithm), "\n", ToAbsl(amz_date), "\n", ToAbsl(scope_text), "\n");
}

const Signer& CachedSigner(std::string_view secret_key, std::string_view amz_date, const SigV4Scope& scope) {
  thread_local std::optional<Signer> last;
  if (last && last->amz_date == amz_date && last->secret == secret_key && last->scope == scope) return *last;
  const std::string_view date = amz_date.substr(0, kDateLength);
  const bool same_key = last && last->amz_date.starts_with(date) && last->secret == secret_key && last->scope == scope;
  const Sha256Digest of_day =
      same_key ? Sha256Digest() : SigningKey(absl::StrCat("AWS4", ToAbsl(secret_key)), date, scope);
  HmacKey key = same_key ? std::move(last->key) : HmacKey(Bytes(of_day));
  last.reset();  // it has no key any more, also if something below throws
  std::string scope_text = ScopeText(amz_date, scope);
  HmacKey canonical = key.After(AsBytes(BeginToSign(amz_date, scope_text)));
  last.emplace(Signer{std::string(secret_key), std::string(amz_date), scope, std::move(scope_text), std::move(key),
                      std::move(canonical)});
  return *last;
}

// Returns AmzDate of the last second in which this thread has signed something.
const std::string& CachedAmzDate(absl::Time time) {
  struct Last {
    int64_t second = 0;
    std::string text;
  };
  thread_local Last last;
  const int64_t second = absl::ToUnixSeconds(time);
  if (last.text.empty() || last.second != second) last = {second, AmzDate(time)};
  return last.text;
}

// Sorts the fields, which are few and nearly in order. Stable.
void SortByName(std::vector<HttpHeaders::Field>* fields) {
  for (size_t i = 1; i < fields->size(); ++i) {
    for (size_t j = i; j > 0 && (*fields)[j].first < (*fields)[j - 1].first; --j) {
      std::swap((*fields)[j], (*fields)[j - 1]);
    }
  }
}

// Signing needs these again and again, and they keep their room.
struct SigningRoom {
  std::string lowered, names, canonical, hash, authorization;
  std::vector<HttpHeaders::Field> fields;
};

}  // namespace

std::string StringToSign(std::string_view canonical_request, absl::Time time, const SigV4Scope& scope) {
  const std::string& amz_date = CachedAmzDate(time);
  std::string text = BeginToSign(amz_date, ScopeText(amz_date, scope));
  AppendHex(&text, Sha256(AsBytes(canonical_request)));
  return text;
}

std::string Signature(std::string_view string_to_sign, std::string_view secret_key, absl::Time time,
                      const SigV4Scope& scope) {
  return HexEncode(CachedSigner(secret_key, CachedAmzDate(time), scope).key.Sign(AsBytes(string_to_sign)));
}

void SignRequest(HttpRequestHead& request, std::string_view payload_hash, const Credentials& credentials,
                 const SigV4Scope& scope, absl::Time time) {
  thread_local SigningRoom room;
  const Signer& signer = CachedSigner(credentials.secret_key, CachedAmzDate(time), scope);
  request.headers.Set("x-amz-date", signer.amz_date);
  request.headers.Set("x-amz-content-sha256", payload_hash);
  if (!credentials.session_token.empty()) request.headers.Set("x-amz-security-token", credentials.session_token);
  room.lowered.clear();  // names, to which `fields` refers
  for (const auto& [name, value] : request.headers) room.lowered.append(name);
  absl::AsciiStrToLower(&room.lowered);
  room.fields.clear();
  std::string_view rest = room.lowered;
  for (const auto& [field, value] : request.headers) {
    const std::string_view name = rest.substr(0, field.size());
    rest.remove_prefix(field.size());
    if (!LeftUnsigned(name)) room.fields.emplace_back(name, value);
  }
  SortByName(&room.fields);
  room.names.clear();
  AppendNames(room.names, room.fields);
  room.canonical.clear();
  AppendCanonical(&room.canonical, request.method, request.target, room.fields, room.names, payload_hash);
  room.hash.clear();
  AppendHex(&room.hash, Sha256(AsBytes(room.canonical)));
  room.authorization.assign(kAlgorithm).append(" Credential="sv).append(credentials.access_key).append("/"sv);
  room.authorization.append(signer.scope_text).append(", SignedHeaders="sv).append(room.names);
  room.authorization.append(", Signature="sv);
  AppendHex(&room.authorization, signer.canonical.Sign(AsBytes(room.hash)));
  request.headers.Set("Authorization", room.authorization);
}

std::string AmzDate(absl::Time time) {
  const absl::CivilSecond t = absl::ToCivilSecond(time, absl::UTCTimeZone());
  return fmt::format(FMT_COMPILE("{:04}{:02}{:02}T{:02}{:02}{:02}Z"), t.year(), t.month(), t.day(), t.hour(),
                     t.minute(), t.second());
}

}  // namespace millrace
