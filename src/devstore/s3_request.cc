#include "devstore/s3_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "aws/sigv4.h"
#include "base/number.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr size_t kMaxKeyBytes = 1024;

/// Returns the bucket of "bucket.localhost:9000"; empty for other hosts.
std::string_view VirtualBucket(std::string_view host) {
  host = host.substr(0, host.rfind(':'));
  constexpr std::string_view kSuffix = ".localhost";
  return host.ends_with(kSuffix) ? host.substr(0, host.size() - kSuffix.size()) : std::string_view();
}

// A request may name the whole URL (RFC 9112, 3.2.2), as those of the AWS SDK for C++ do. The part after the host
// counts.
void ToOriginForm(std::string& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t end = target.find_first_of("/?", scheme.size());
    target.erase(0, end);
    if (!target.starts_with('/')) target.insert(0, "/");
    return;
  }
}

absl::Status InvalidUri() {
  return S3Error(s3code::kInvalidUri, "Couldn't parse the specified URI.");
}

}  // namespace

bool MayNameBucket(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::optional<std::string_view> S3Request::Parameter(std::string_view name) const {
  for (const auto& [field, value] : query) {
    if (field == name) return value;
  }
  return std::nullopt;
}

std::string_view S3Request::path() const {
  return std::string_view(head.target).substr(0, head.target.find('?'));
}

std::string S3Request::Subject() const {
  if (bucket.empty()) return "";
  return bucket + "/" + (key.empty() ? ParameterOr("prefix") : key);
}

absl::StatusOr<S3Request> ParseS3Request(HttpRequestHead head) {
  S3Request request;
  request.head = std::move(head);
  ToOriginForm(request.head.target);
  std::string_view path = request.path();
  if (path.empty() || path[0] != '/') return InvalidUri();
  path.remove_prefix(1);
  const size_t question = request.head.target.find('?');
  if (question != std::string::npos) {
    auto query = ParseQuery(std::string_view(request.head.target).substr(question + 1));
    if (!query) return InvalidUri();
    request.query = *std::move(query);
  }
  request.bucket = VirtualBucket(request.Header("host").value_or(""));
  if (request.bucket.empty()) {
    const size_t slash = path.find('/');
    std::optional<std::string> bucket = UriDecode(path.substr(0, slash));
    if (!bucket) return InvalidUri();
    request.bucket = *std::move(bucket);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  std::optional<std::string> key = UriDecode(path);
  if (!key) return InvalidUri();
  request.key = *std::move(key);
  if (request.bucket.empty() ? !request.key.empty() : !MayNameBucket(request.bucket)) {
    return S3Error(s3code::kInvalidBucketName, "The specified bucket is not valid.", {{"BucketName", request.bucket}});
  }
  if (request.key.size() > kMaxKeyBytes) {
    return S3Error(s3code::kKeyTooLong, "Your key is too long",
                   {{"Size", std::to_string(request.key.size())}, {"MaxSizeAllowed", std::to_string(kMaxKeyBytes)}});
  }
  return request;
}

absl::Status CheckNewBucketName(std::string_view name) {
  const auto plain = [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); };
  bool good = !name.empty() && name.size() <= 63 && plain(name.front()) && plain(name.back()) &&
              name.find("..") == std::string_view::npos;
  for (const char c : name) good = good && (plain(c) || c == '-' || c == '.');
  // The name must not have the form of an IPv4 address.
  good = good && (std::count(name.begin(), name.end(), '.') != 3 ||
                  std::any_of(name.begin(), name.end(), [](char c) { return c != '.' && !absl::ascii_isdigit(c); }));
  if (good) return absl::OkStatus();
  return S3Error(
      s3code::kInvalidBucketName,
      "The specified bucket is not valid: 1 to 63 lower-case letters, digits, '-' and '.', starting and ending with "
      "a letter or digit",
      {{"BucketName", std::string(name)}});
}

std::optional<uint64_t> ParseDecimal(std::string_view text, uint64_t min, uint64_t max) {
  const std::optional<uint64_t> value = ParseNumber<uint64_t>(text);
  return value && *value >= min && *value <= max ? value : std::nullopt;
}

}  // namespace millrace
