#include "store/bucket_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "s3/address.h"
#include "store/uri.h"

namespace millrace {

namespace {

// Returns true for a relative path of which not even the first part exists, and which may be the name of a bucket. A
// name with an ending and no folder is more likely that of a file.
bool LooksLikeABucket(const std::string& uri) {
  const absl::StatusOr<ParsedUri> parsed = ParseUri(uri);
  if (!parsed.ok() || parsed->scheme != ParsedUri::Scheme::kFile || parsed->path != uri) return false;
  const std::string first = uri.substr(0, uri.find('/'));
  if (!PlausibleBucket(first) || first.front() == '.' || first.front() == '-') return false;
  if (first == uri && first.find('.') != std::string::npos) return false;
  std::error_code ignored;  // what cannot be looked at is there
  return std::filesystem::symlink_status(first, ignored).type() == std::filesystem::file_type::not_found;
}

}  // namespace

absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris) {
  if (!absl::IsNotFound(status)) return status;
  const auto bucket = std::find_if(uris.begin(), uris.end(), LooksLikeABucket);
  if (bucket == uris.end()) return status;
  return absl::NotFoundError(fmt::format("{}; for an object store write s3://{}", ToStd(status.message()), *bucket));
}

}  // namespace millrace
