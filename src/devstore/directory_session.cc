#include "devstore/directory_session.h"

#include <fmt/format.h>

#include <optional>

#include "absl/strings/numbers.h"
#include "base/crypto.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr absl::Duration kSessionLife = absl::Minutes(5);
constexpr std::string_view kTokenHeader = "x-amz-s3session-token";

std::string Derive(std::string_view secret_key, std::string_view purpose, std::string_view token) {
  const std::string text = fmt::format("{}\n{}", purpose, token);
  return HexEncode(HmacSha256(AsBytes(secret_key), AsBytes(text)));
}

/// A token is "END-SEAL", where the seal covers the bucket and the end, in seconds since 1970.
std::string TokenOf(std::string_view bucket, std::string_view secret_key, int64_t end) {
  return fmt::format("{}-{}", end, Derive(secret_key, "seal", fmt::format("{}\n{}", bucket, end)));
}

Credentials KeysOfToken(std::string_view secret_key, const std::string& token) {
  return {"SESSION" + Derive(secret_key, "key", token).substr(0, 13), Derive(secret_key, "secret", token), ""};
}

/// In AWS, the keys of the account sign copies and requests about the bucket itself.
bool NeedsSession(const S3Request& request) {
  if (request.Header("x-amz-copy-source")) return false;
  if (!request.key.empty()) return true;
  const std::string& method = request.head.method;
  return (method == "GET" && !request.Has("session") && !request.Has("location")) || method == "POST";
}

}  // namespace

ExpiringCredentials MakeDirectorySession(std::string_view bucket, std::string_view secret_key, absl::Time now) {
  const int64_t end = absl::ToUnixSeconds(now + kSessionLife);
  const std::string token = TokenOf(bucket, secret_key, end);
  ExpiringCredentials session{KeysOfToken(secret_key, token), absl::FromUnixSeconds(end)};
  session.keys.session_token = token;
  return session;
}

absl::StatusOr<AuthSettings> DirectoryAuth(const S3Request& request, const AuthSettings& settings, absl::Time now) {
  AuthSettings result = settings;
  result.service = "s3express";
  if (settings.anonymous || !NeedsSession(request)) return result;
  const std::string token(request.Header(kTokenHeader).value_or(""));
  if (token.empty()) return S3Error(s3code::kAccessDenied, "Access Denied: a directory bucket needs a session");
  const std::string& secret_key = settings.credentials.secret_key;
  int64_t end = 0;
  if (!absl::SimpleAtoi(token.substr(0, token.find('-')), &end) || token != TokenOf(request.bucket, secret_key, end)) {
    return S3Error(s3code::kInvalidToken, "The provided token is malformed or otherwise invalid.");
  }
  if (absl::FromUnixSeconds(end) <= now) return S3Error(s3code::kExpiredToken, "The provided token has expired.");
  result.credentials = KeysOfToken(secret_key, token);
  return result;
}

absl::Status CheckDirectoryRequest(const S3Request& request) {
  const auto invalid = [](std::string_view why) { return S3Error(s3code::kInvalidRequest, why); };
  if (request.Header("content-md5")) return invalid("A directory bucket takes no Content-MD5.");
  if (!request.key.empty() || request.head.method != "GET") return absl::OkStatus();
  if (request.Has("session") || request.Has("location")) return absl::OkStatus();
  const std::string prefix = request.ParameterOr("prefix");
  if (!prefix.empty() && !prefix.ends_with('/')) return invalid("A prefix in a directory bucket must end in '/'.");
  if (request.Has("uploads")) return absl::OkStatus();
  if (request.ParameterOr("list-type") != "2")
    return S3Error(s3code::kNotImplemented, "A directory bucket is listed by ListObjectsV2 only.");
  if (request.Has("start-after")) return S3Error(s3code::kNotImplemented, "A directory bucket takes no start-after.");
  const std::string delimiter = request.ParameterOr("delimiter");
  if (!delimiter.empty() && delimiter != "/") return invalid("The delimiter of a directory bucket is '/'.");
  return absl::OkStatus();
}

}  // namespace millrace
