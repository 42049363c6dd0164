#include "store/uri.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "s3/bucket_name.h"

namespace millrace {

namespace {

constexpr std::string_view kForms = "s3://bucket/key, file:///path, mem://name/key or a plain path";

// Returns the letters before a ':' as RFC 3986 has them, in lower case; "" if the text does not begin with a scheme.
std::string SchemeOf(std::string_view uri) {
  const size_t colon = uri.find(':');
  if (colon == uri.npos || colon == 0 || !absl::ascii_isalpha(static_cast<unsigned char>(uri[0]))) return "";
  const std::string_view scheme = uri.substr(0, colon);
  const bool valid = std::all_of(scheme.begin(), scheme.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.';
  });
  return valid ? absl::AsciiStrToLower(ToAbsl(scheme)) : "";
}

/// Returns true if the query is that of a presigned URL, by AWS's signature version 4 or 2.
bool IsPresigned(std::string_view uri) {
  const size_t question = uri.find('?');
  if (question == uri.npos) return false;
  const std::string query = absl::AsciiStrToLower(absl::StrCat("&", ToAbsl(uri.substr(question + 1))));
  for (const char* secret : {"&x-amz-signature=", "&x-amz-security-token=", "&signature="}) {
    if (query.find(secret) != query.npos) return true;
  }
  return false;
}

/// Returns the text for messages, without what may be a secret: keys before a host or bucket, and the query of an
/// address.
std::string Shown(std::string_view uri) {
  const std::string scheme = SchemeOf(uri);
  const size_t authority = uri.find("://");
  if (scheme.empty() || authority != scheme.size()) return std::string(uri);
  std::string_view rest = uri.substr(authority + 3);
  const bool ours = scheme == "s3" || scheme == "file" || scheme == "mem";
  if (!ours || IsPresigned(rest)) rest = rest.substr(0, rest.find('?'));
  // Secret keys may contain slashes. A bucket's name contains neither of these.
  if (rest.substr(0, rest.find('/')).find_first_of(":@") != rest.npos && rest.rfind('@') != rest.npos)
    rest.remove_prefix(rest.rfind('@') + 1);
  return fmt::format("{}://{}", scheme, rest);
}

// Returns the remedy for an address of another kind, by its scheme; "" for a scheme that is not known.
std::string_view OtherSchemeAdvice(std::string_view scheme) {
  struct Advice {
    std::string_view schemes;  // each with a blank before and behind it
    std::string_view text;
  };
  constexpr Advice kAdvice[] = {
      {" gs gcs ",
       "Google Cloud Storage is read by its S3 interface: make an HMAC key, set AWS_ENDPOINT_URL to "
       "https://storage.googleapis.com and write s3://"},
      {" az azure abfs abfss wasb wasbs adl ",
       "Azure has no S3 interface: copy the data to a disk or to a bucket (azcopy, rclone), or mount the container "
       "(blobfuse2) and give the path"},
      {" hf ",
       "data of the Hugging Face Hub are read from a disk: `hf download NAME --repo-type dataset --local-dir DIR`, and "
       "give DIR; Parquet files there become shards by `millrace pack DIR DST`"},
      {" http https ",
       "HTTP addresses are not read; for an S3-compatible endpoint set AWS_ENDPOINT_URL and use s3://; download other "
       "files first (curl, wget), and give their path"},
      {" s3a s3n ", "it is what Hadoop calls S3; write s3:// in its place"},
      {" r2 oss cos b2 minio obs tos ", "this store has an S3 interface: set AWS_ENDPOINT_URL to it and write s3://"},
      {" hdfs webhdfs viewfs ",
       "HDFS is not read: copy the data to a disk or to a bucket (hadoop distcp), or mount it"},
      {" ftp ftps sftp ssh scp ", "download the data first (rsync, rclone), and give their path"},
      {" dbfs ", "give the path of the mount, /dbfs/..., or of the volume, /Volumes/..."},
  };
  const std::string word = fmt::format(" {} ", scheme);
  for (const Advice& advice : kAdvice) {
    if (advice.schemes.find(word) != advice.schemes.npos) return advice.text;
  }
  return "";
}

absl::Status Refuse(std::string_view uri, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("'{}': {}; a URI is {}", Shown(uri), why, kForms));
}

bool IsStoreName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

/// Parses "arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/key".
absl::StatusOr<ParsedUri> ParseArnUri(std::string_view uri, std::string_view rest) {
  if (IsPresigned(rest)) return Refuse(uri, "is presigned, and Millrace signs its requests by itself");
  const size_t length = ArnLength(rest);
  const absl::Status known = ParseBucketName(rest.substr(0, length)).status();
  if (!known.ok()) return Refuse(uri, ToStd(known.message()));
  return ParsedUri{ParsedUri::Scheme::kS3, CanonicalArn(rest.substr(0, length)),
                   std::string(rest.substr(std::min(length + 1, rest.size())))};
}

}  // namespace

absl::StatusOr<ParsedUri> ParseUri(std::string_view uri) {
  if (uri.empty()) return Refuse(uri, "is empty");
  if (uri.find('\0') != uri.npos) return Refuse(uri.substr(0, uri.find('\0')), "a NUL byte follows");

  const std::string scheme = SchemeOf(uri);
  const bool ours = scheme == "s3" || scheme == "file" || scheme == "mem";
  std::string_view rest = uri;
  if (!scheme.empty()) rest.remove_prefix(scheme.size() + 1);
  const bool authority = !scheme.empty() && rest.starts_with("//");
  if (ours && !authority) return Refuse(uri, fmt::format("after '{}:' two slashes are missing", scheme));
  if (scheme == "arn" && uri.find(":s3:::") != uri.npos)
    return Refuse(uri, fmt::format("is the ARN of a bucket; write s3://{}", uri.substr(uri.find(":s3:::") + 6)));
  if (!authority) return ParsedUri{ParsedUri::Scheme::kFile, "", std::string(uri)};
  if (!ours) {
    const std::string_view advice = OtherSchemeAdvice(scheme);
    return Refuse(
        uri, advice.empty() ? fmt::format("'{}' is not a store that Millrace knows", scheme) : std::string(advice));
  }
  rest.remove_prefix(2);

  if (scheme == "file") {
    if (!rest.starts_with('/')) return Refuse(uri, "file:// is followed by an absolute path");
    return ParsedUri{ParsedUri::Scheme::kFile, "", std::string(rest)};
  }
  if (scheme == "s3" && IsBucketArn(rest) && rest.substr(0, ArnLength(rest)).find('@') == rest.npos)
    return ParseArnUri(uri, rest);
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view name = rest.substr(0, slash);
  if (IsPresigned(rest)) return Refuse(uri, "is presigned, and Millrace signs its requests by itself");
  if (name.find('@') != name.npos || (name.find(':') != name.npos && rest.find('@') != rest.npos))
    return Refuse(uri, "keys do not belong here; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  if (!IsStoreName(name))
    return Refuse(uri, fmt::format("'{}' is not a name of a {}", name, scheme == "s3" ? "bucket" : "store"));
  return ParsedUri{scheme == "s3" ? ParsedUri::Scheme::kS3 : ParsedUri::Scheme::kMemory, std::string(name),
                   std::string(rest.substr(std::min(slash + 1, rest.size())))};
}

absl::StatusOr<ParsedUri> ParseObjectUri(std::string_view uri) {
  ASSIGN_OR_RETURN(ParsedUri parsed, ParseUri(uri));
  if (parsed.scheme != ParsedUri::Scheme::kFile) {
    if (!parsed.path.empty()) return parsed;
    return absl::InvalidArgumentError(fmt::format("'{}': names no object; append '/' and its key", uri));
  }
  const std::string_view path = parsed.path;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (!name.empty() && name != "." && name != "..") return parsed;
  return absl::InvalidArgumentError(fmt::format("'{}': is a folder; a file is needed here", uri));
}

}  // namespace millrace
