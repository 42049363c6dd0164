#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/status.h"

/// These are listings of S3, except that of objects. Plain data.

namespace millrace {

struct BucketEntry {
  std::string name;
  int64_t created_ms = 0;  // since 1970; 0: not given
};

struct BucketPage {
  std::vector<BucketEntry> buckets;
  std::string continuation;  // for the next page; empty: this is the last one
};

/// Describes a multipart upload that was begun, and neither completed nor aborted. Its parts are paid for.
struct UnfinishedUpload {
  std::string key;
  std::string upload_id;
  int64_t begun_ms = 0;  // since 1970; 0: not given
};

/// Says where a page of uploads begins: after this one. If it is empty, it begins at the first.
struct UploadMarker {
  std::string key;
  std::string upload_id;
  friend bool operator==(const UploadMarker&, const UploadMarker&) = default;
};

struct UploadPage {
  std::vector<UnfinishedUpload> uploads;
  bool more = false;
  UploadMarker next;  // if there is more
};

using BucketsCallback = absl::AnyInvocable<void(absl::StatusOr<BucketPage>)>;
using UploadsCallback = absl::AnyInvocable<void(absl::StatusOr<UploadPage>)>;

}  // namespace millrace
