#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "net/http_message.h"

/// Computes AWS Signature Version 4 for S3, as pure functions. Client and devstore share only these steps; that they
/// are right is shown by AWS's published vectors, by botocore and by Ceph. Source: AWS documentation, "Signature
/// Version 4 signing process", "Authenticating Requests (AWS Signature Version 4)".

namespace millrace {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty for long-lived keys

  bool anonymous() const { return access_key.empty(); }
};

/// Percent-encodes as SigV4 wants: unreserved A-Z a-z 0-9 - . _ ~ stay, the rest becomes %XX in upper case;
/// `keep_slash` for paths.
std::string UriEncode(std::string_view raw, bool keep_slash);
void AppendUriEncoded(std::string* out, std::string_view raw, bool keep_slash);

/// Decodes %XX; '+' stays '+'. nullopt for a broken escape.
std::optional<std::string> UriDecode(std::string_view encoded);

/// Splits an encoded query into decoded name/value pairs, in the order given. "a" and "a=" both give {"a", ""}.
std::optional<std::vector<std::pair<std::string, std::string>>> ParseQuery(std::string_view query);

struct SigV4Scope {
  std::string region;
  std::string service = "s3";

  bool operator==(const SigV4Scope&) const = default;
};

/// Returns the canonical request. `target` is the encoded path with its query (the path is taken as it is: S3 does not
/// normalise); `signed_headers` are lower-case names in order, each present in `headers`.
std::string CanonicalRequest(std::string_view method, std::string_view target, const HttpHeaders& headers,
                             const std::vector<std::string>& signed_headers, std::string_view payload_hash);

std::string StringToSign(std::string_view canonical_request, absl::Time time, const SigV4Scope& scope);

/// Returns 64 lower-case hex digits.
std::string Signature(std::string_view string_to_sign, std::string_view secret_key, absl::Time time,
                      const SigV4Scope& scope);

/// These are the payload hash of an empty body, and the marker of an unsigned one.
inline constexpr std::string_view kEmptyPayloadHash =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

/// Adds x-amz-date, x-amz-content-sha256, x-amz-security-token (when there is one) and Authorization to a request that
/// already has its Host. Every header present is signed, but for User-Agent and those that proxies change.
void SignRequest(HttpRequestHead& request, std::string_view payload_hash, const Credentials& credentials,
                 const SigV4Scope& scope, absl::Time time);

/// Returns "20150830T123600Z".
std::string AmzDate(absl::Time time);

}  // namespace millrace
