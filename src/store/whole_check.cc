#include "store/whole_check.h"

#include <fmt/format.h>

#include <utility>

#include "store/blocking.h"

namespace millrace {

absl::StatusOr<WholeCheck> WholeCheck::Begin(ObjectStore& store, const ObjectInfo& object, std::stop_token stop) {
  WholeCheck check;
  check.uri_ = store.Uri(object.key);
  check.expected_ = object.checksum;
  if (!check.expected_) {
    ASSIGN_OR_RETURN(const ObjectInfo now, HeadBlocking(store, object.key, std::move(stop)));
    // Another version has another checksum; that it is another one is said by the read.
    if (now.etag == object.etag) check.expected_ = now.checksum;
  }
  // That an ETag is no MD5 shows only in a second read of the same.
  if (check.expected_ && check.expected_->kind == ObjectChecksum::Kind::kMd5) check.expected_.reset();
  if (check.expected_) check.digest_.emplace(check.expected_->kind);
  return check;
}

void WholeCheck::Update(ByteSpan bytes) {
  if (digest_) digest_->Update(bytes);
}

absl::Status WholeCheck::Finish() {
  if (!digest_ || digest_->Finish() == expected_->digest) return absl::OkStatus();
  return absl::DataLossError(fmt::format(
      "{}: what arrived does not match the {} that the store keeps for it; it was damaged on the way or in the store",
      uri_, ChecksumKindName(expected_->kind)));
}

}  // namespace millrace
