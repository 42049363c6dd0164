#include "devstore/auth.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/crypto.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr absl::Duration kMaxSkew = absl::Minutes(15);
constexpr uint64_t kMaxExpiry = 7 * 24 * 3600;

/// Holds the claims of a signature, from either place.
struct Claim {
  bool presigned = false;
  std::string access_key;
  std::string day;
  SigV4Scope scope;
  std::vector<std::string> signed_headers;
  std::string signature;
};

absl::Status Malformed(bool presigned, std::string_view what, const S3ErrorDetails& details = {}) {
  return presigned ? S3Error(s3code::kAuthorizationQueryParametersError, what, details)
                   : S3Error(s3code::kAuthorizationHeaderMalformed,
                             fmt::format("The authorization header is malformed; {}", what), details);
}

/// Parses a text such as "AKID/20130524/us-east-1/s3/aws4_request".
absl::Status ParseCredential(std::string_view text, Claim* claim) {
  const std::vector<absl::string_view> items = absl::StrSplit(ToAbsl(text), '/');
  // An access key may contain slashes; the scope is the last four.
  if (items.size() < 5 || items.back() != "aws4_request") {
    return Malformed(claim->presigned,
                     "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".");
  }
  const size_t n = items.size();
  claim->day = std::string(items[n - 4]);
  claim->scope = {std::string(items[n - 3]), std::string(items[n - 2])};
  for (size_t i = 0; i + 4 < n; ++i) claim->access_key.append(i > 0 ? "/" : "").append(ToStd(items[i]));
  return absl::OkStatus();
}

absl::StatusOr<Claim> ParseHeader(std::string_view header) {
  if (!header.starts_with(kAlgorithm)) {
    return S3Error(s3code::kInvalidRequest,
                   "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.");
  }
  Claim claim;
  std::string_view credential;
  for (const absl::string_view item : absl::StrSplit(ToAbsl(header.substr(kAlgorithm.size())), ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(absl::StripAsciiWhitespace(item), absl::MaxSplits('=', 1));
    if (pair.first == "Credential") credential = ToStd(pair.second);
    if (pair.first == "SignedHeaders") claim.signed_headers = absl::StrSplit(pair.second, ';', absl::SkipEmpty());
    if (pair.first == "Signature") claim.signature = std::string(pair.second);
  }
  if (credential.empty() || claim.signed_headers.empty() || claim.signature.empty()) {
    return Malformed(false, "it needs Credential, SignedHeaders and Signature.");
  }
  RETURN_IF_ERROR(ParseCredential(credential, &claim));
  return claim;
}

absl::StatusOr<Claim> ParsePresigned(const S3Request& request) {
  Claim claim;
  claim.presigned = true;
  if (request.ParameterOr("X-Amz-Algorithm") != kAlgorithm) {
    return Malformed(true, "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
  }
  for (const char* name :
       {"X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires"}) {
    if (request.ParameterOr(name).empty()) {
      return Malformed(
          true,
          "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
          "X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.");
    }
  }
  RETURN_IF_ERROR(ParseCredential(request.ParameterOr("X-Amz-Credential"), &claim));
  claim.signed_headers = absl::StrSplit(request.ParameterOr("X-Amz-SignedHeaders"), ';', absl::SkipEmpty());
  claim.signature = request.ParameterOr("X-Amz-Signature");
  return claim;
}

absl::Status CheckScope(const Claim& claim, const AuthSettings& settings) {
  if (claim.scope.service != settings.service) {
    return Malformed(claim.presigned, fmt::format("incorrect service \"{}\". This endpoint belongs to \"{}\".",
                                                  claim.scope.service, settings.service));
  }
  if (claim.scope.region != settings.region) {
    return Malformed(claim.presigned,
                     fmt::format("the region '{}' is wrong; expecting '{}'", claim.scope.region, settings.region),
                     {{"Region", settings.region}});
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> RequestTime(const S3Request& request, const Claim& claim) {
  const std::string text =
      claim.presigned ? request.ParameterOr("X-Amz-Date") : std::string(request.Header("x-amz-date").value_or(""));
  // Nearly all requests of a second say the same.
  struct Last {
    std::string text;
    absl::Time time;
  };
  thread_local Last last;
  absl::Time time = last.time;
  if (text != last.text || text.empty()) {
    if (absl::ParseTime("%E4Y%m%dT%H%M%SZ", text, &time, nullptr)) last = {text, time};
  }
  if (text != last.text || text.empty()) {
    return claim.presigned
               ? Malformed(true, "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
               : S3Error(s3code::kAccessDenied, "AWS authentication requires a valid Date or x-amz-date header");
  }
  if (!absl::StartsWith(text, claim.day)) {
    return Malformed(claim.presigned,
                     fmt::format("Invalid credential date \"{}\". This date is not the same as X-Amz-Date: \"{}\".",
                                 claim.day, text.substr(0, 8)));
  }
  return time;
}

absl::Status CheckTime(const S3Request& request, const Claim& claim, absl::Time time, absl::Time now) {
  if (claim.presigned) {
    const auto expiry = ParseDecimal(request.ParameterOr("X-Amz-Expires"), 0, kMaxExpiry);
    if (!expiry)
      return Malformed(true, "X-Amz-Expires must be a non-negative number of seconds, at most a week (604800)");
    if (now > time + absl::Seconds(static_cast<int64_t>(*expiry))) {
      return S3Error(
          s3code::kAccessDenied, "Request has expired",
          {{"X-Amz-Expires", std::to_string(*expiry)},
           {"Expires", absl::FormatTime(absl::RFC3339_sec, time + absl::Seconds(static_cast<int64_t>(*expiry)),
                                        absl::UTCTimeZone())},
           {"ServerTime", absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone())}});
    }
    if (time > now + kMaxSkew) return S3Error(s3code::kAccessDenied, "Request is not yet valid");
    return absl::OkStatus();
  }
  if (now - time <= kMaxSkew && time - now <= kMaxSkew) return absl::OkStatus();
  return S3Error(s3code::kRequestTimeTooSkewed,
                 "The difference between the request time and the current time is too large.",
                 {{"RequestTime", AmzDate(time)},
                  {"ServerTime", absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone())},
                  {"MaxAllowedSkewMilliseconds", std::to_string(absl::ToInt64Milliseconds(kMaxSkew))}});
}

/// Everything that may change the meaning of a request must be signed.
absl::Status CheckSignedHeaders(const S3Request& request, const Claim& claim) {
  const auto is_signed = [&](const std::string& name) {
    return std::find(claim.signed_headers.begin(), claim.signed_headers.end(), name) != claim.signed_headers.end();
  };
  std::string missing = is_signed("host") ? "" : "host";
  for (const auto& [field, value] : request.head.headers) {
    if (!absl::StartsWithIgnoreCase(ToAbsl(field), "x-amz-")) continue;
    const std::string name = absl::AsciiStrToLower(ToAbsl(field));
    if (!is_signed(name) && !(claim.presigned && name == "x-amz-content-sha256")) {
      missing.append(missing.empty() ? "" : ", ").append(name);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return S3Error(s3code::kAccessDenied, "There were headers present in the request which were not signed",
                 {{"HeadersNotSigned", missing}});
}

bool IsPayloadHash(std::string_view text) {
  const auto is_hex = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
  return text == kUnsignedPayload || text == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" ||
         text == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" || text == "STREAMING-UNSIGNED-PAYLOAD-TRAILER" ||
         (text.size() == 64 && std::all_of(text.begin(), text.end(), is_hex));
}

absl::StatusOr<std::string> PayloadHash(const S3Request& request, const AuthSettings& settings, bool presigned) {
  const auto header = request.Header("x-amz-content-sha256");
  if (settings.body_hash && (!header || *header == *settings.body_hash)) return *settings.body_hash;
  if (!header) {
    if (presigned) return std::string(kUnsignedPayload);
    return S3Error(s3code::kInvalidRequest, "Missing required header for this request: x-amz-content-sha256");
  }
  if (!settings.body_hash && IsPayloadHash(*header)) return std::string(*header);
  return S3Error(
      s3code::kInvalidArgument,
      "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
      "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-UNSIGNED-PAYLOAD-TRAILER or a valid sha256 value.",
      {{"ArgumentName", "x-amz-content-sha256"}, {"ArgumentValue", std::string(*header)}});
}

/// Returns the target without the parameter that carries the signature itself.
std::string WithoutSignature(std::string_view target) {
  const size_t question = target.find('?');
  std::string out(target.substr(0, question));
  if (question == std::string_view::npos) return out;
  char separator = '?';
  for (const absl::string_view item : absl::StrSplit(ToAbsl(target.substr(question + 1)), '&')) {
    if (absl::StartsWith(item, "X-Amz-Signature=")) continue;
    out.push_back(separator);
    out.append(ToStd(item));
    separator = '&';
  }
  return out;
}

/// Returns the path with every byte escaped as SigV4 wants: clients may send it otherwise than they sign it.
std::string NormalisedTarget(const std::string& target) {
  const size_t question = target.find('?');
  const std::optional<std::string> path = UriDecode(std::string_view(target).substr(0, question));
  if (!path) return target;
  return UriEncode(*path, /*keep_slash=*/true) + (question == std::string::npos ? "" : target.substr(question));
}

}  // namespace

absl::StatusOr<AuthResult> Authenticate(const S3Request& request, const AuthSettings& settings, absl::Time now) {
  const auto header = request.Header("authorization");
  const bool presigned = !header && (request.Has("X-Amz-Algorithm") || request.Has("X-Amz-Signature"));
  AuthResult result;
  if (settings.anonymous) {
    if (const auto hash = request.Header("x-amz-content-sha256"); hash && IsPayloadHash(*hash))
      result.payload_hash = *hash;
    return result;
  }
  if (!header && !presigned) {
    return S3Error(s3code::kAccessDenied,
                   "Access Denied: the request is not signed, and devstore runs without --anonymous");
  }
  ASSIGN_OR_RETURN(const Claim claim, presigned ? ParsePresigned(request) : ParseHeader(*header));
  RETURN_IF_ERROR(CheckScope(claim, settings));
  ASSIGN_OR_RETURN(result.time, RequestTime(request, claim));
  if (claim.access_key != settings.credentials.access_key) {
    return S3Error(s3code::kInvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records.",
                   {{"AWSAccessKeyId", claim.access_key}});
  }
  if (request.Header("x-amz-security-token") || request.Has("X-Amz-Security-Token")) {
    return S3Error(s3code::kInvalidToken, "The provided token is malformed or otherwise invalid.");
  }
  RETURN_IF_ERROR(CheckTime(request, claim, result.time, now));
  RETURN_IF_ERROR(CheckSignedHeaders(request, claim));
  ASSIGN_OR_RETURN(result.payload_hash, PayloadHash(request, settings, presigned));

  const std::string target = presigned ? WithoutSignature(request.head.target) : request.head.target;
  std::string to_sign;
  const auto matches = [&](const std::string& as_sent) {
    const std::string canonical =
        CanonicalRequest(request.head.method, as_sent, request.head.headers, claim.signed_headers, result.payload_hash);
    to_sign = StringToSign(canonical, result.time, claim.scope);
    return EqualConstantTime(Signature(to_sign, settings.credentials.secret_key, result.time, claim.scope),
                             claim.signature);
  };
  if (!matches(target)) {
    const std::string normalised = NormalisedTarget(target);
    if (normalised == target || !matches(normalised)) {
      return S3Error(
          s3code::kSignatureDoesNotMatch,
          "The request signature we calculated does not match the signature you provided. Check your key and signing "
          "method.",
          {{"AWSAccessKeyId", claim.access_key}, {"StringToSign", to_sign}});
    }
  }
  result.is_signed = true;
  result.scope = claim.scope;
  result.signature = claim.signature;
  return result;
}

}  // namespace millrace
