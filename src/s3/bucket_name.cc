#include "s3/bucket_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "aws/endpoint.h"

namespace millrace {

namespace {

constexpr std::string_view kAccessPointForm = "arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME";

struct Arn {
  std::string_view partition, service, region, account, resource;
};

/// Fields that are missing are empty.
Arn SplitArn(std::string_view text) {
  std::array<std::string_view, 5> fields;
  for (std::string_view& field : fields) {
    const size_t colon = std::min(text.find(':'), text.size());
    field = text.substr(0, colon);
    text.remove_prefix(std::min(text.size(), colon + 1));
  }
  return {fields[1], fields[2], fields[3], fields[4], text};
}

bool IsLabel(std::string_view text) {
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
  });
}

absl::StatusOr<S3BucketName> ParseArn(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("'{}' {}", text.substr(0, 300), why));
  };
  const Arn arn = SplitArn(text);
  if (arn.service == "s3-object-lambda") {
    return refuse(
        "is an access point of S3 Object Lambda. It changes the bytes of objects, so sizes, ranges and ETags do not "
        "hold: name the access point or the bucket behind it");
  }
  if (arn.service == "s3-outposts") {
    return refuse("is an access point of S3 on Outposts, which Millrace does not know; name a bucket in a region");
  }
  if (arn.service == "s3express") return refuse("is the ARN of a directory bucket; write its name, as in s3://NAME");
  if (arn.service != "s3") return refuse(fmt::format("is not an ARN of S3; expected {}", kAccessPointForm));
  constexpr std::string_view kType = "accesspoint";
  const bool is_access_point = arn.resource.starts_with(kType) && arn.resource.size() > kType.size() + 1 &&
                               (arn.resource[kType.size()] == ':' || arn.resource[kType.size()] == '/');
  if (!is_access_point && arn.region.empty() && arn.account.empty() && !arn.resource.empty())
    return refuse(fmt::format("is the ARN of a bucket; write s3://{}", arn.resource));
  if (!is_access_point) return refuse(fmt::format("is not an ARN of an access point; expected {}", kAccessPointForm));
  const std::string_view name = arn.resource.substr(kType.size() + 1);
  if (arn.region.empty() || name.ends_with(".mrap")) {
    return refuse(
        "is a multi-region access point, which needs signatures of SigV4A; name the access point of one region, or a "
        "bucket");
  }
  if (!IsLabel(arn.partition) || !PlausibleRegion(arn.region) || !IsLabel(arn.account) || !IsLabel(name))
    return refuse(fmt::format("has no valid partition, region, account or name; expected {}", kAccessPointForm));
  return S3BucketName{S3BucketName::Kind::kAccessPoint, fmt::format("{}-{}", name, arn.account),
                      std::string(arn.region), ""};
}

std::string_view WithoutDirectorySuffix(std::string_view bucket) {
  for (const std::string_view suffix : {std::string_view("--x-s3"), std::string_view("--xa-s3")}) {
    if (bucket.ends_with(suffix)) return bucket.substr(0, bucket.size() - suffix.size());
  }
  return {};
}

std::string AccessPointResource(std::string_view arn) {
  std::string resource(arn);
  const size_t colon = resource.rfind(':');
  if (resource.substr(0, colon).ends_with(":accesspoint")) resource[colon] = '/';
  return resource;
}

}  // namespace

bool IsDirectoryBucket(std::string_view bucket) {
  return bucket.ends_with("-s3") && !WithoutDirectorySuffix(bucket).empty();
}

absl::StatusOr<S3BucketName> ParseBucketName(std::string_view bucket) {
  if (IsBucketArn(bucket)) return ParseArn(bucket);
  const bool plausible =
      !bucket.empty() && bucket.size() <= 255 && bucket != "." && bucket != ".." &&
      std::all_of(bucket.begin(), bucket.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
      });
  if (!plausible) return absl::InvalidArgumentError("this cannot be the name of a bucket");
  S3BucketName name{.label = std::string(bucket)};
  if (!IsDirectoryBucket(bucket)) return name;
  const std::string_view rest = WithoutDirectorySuffix(bucket);
  const size_t dashes = rest.rfind("--");
  const std::string_view zone = dashes == std::string_view::npos ? std::string_view() : rest.substr(dashes + 2);
  if (dashes == 0 || !IsLabel(zone) || !IsLabel(bucket)) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' ends like the name of a directory bucket, but has no zone; expected NAME--ZONE--x-s3", bucket));
  }
  name.kind = S3BucketName::Kind::kDirectory;
  name.zone = zone;
  return name;
}

size_t ArnLength(std::string_view text) {
  constexpr std::string_view kType = ":accesspoint/";
  const size_t slash = std::min(text.find('/'), text.size());
  // The slash in front of the access point's name does not end the bucket. An access point may be called accesspoint.
  const std::string_view before = text.substr(0, slash + 1);
  if (!before.ends_with(kType) || std::count(before.begin(), before.end(), ':') != 5) return slash;
  return std::min(text.find('/', slash + 1), text.size());
}

std::string CanonicalArn(std::string_view arn) {
  std::string canonical(arn);
  std::replace(canonical.begin(), canonical.end(), '/', ':');
  return canonical;
}

std::string BucketResource(std::string_view bucket) {
  if (IsDirectoryBucket(bucket)) return fmt::format("arn:aws:s3express:*:*:bucket/{}", bucket);
  return IsBucketArn(bucket) ? AccessPointResource(bucket) : fmt::format("arn:aws:s3:::{}", bucket);
}

std::string ObjectResource(std::string_view bucket, std::string_view key) {
  if (IsDirectoryBucket(bucket)) return BucketResource(bucket);  // the bucket's session covers its objects
  return fmt::format("{}{}/{}", BucketResource(bucket), IsBucketArn(bucket) ? "/object" : "", key);
}

}  // namespace millrace
