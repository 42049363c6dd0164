#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "s3/checksum.h"
#include "store/object_store.h"

namespace millrace {

/// Holds the bytes of an object that is read in pieces against the checksum that the store keeps for it, if it keeps
/// one beside the ETag. (One that is read in one piece: GetOptions::whole.) Not thread-safe.
class WholeCheck {
 public:
  /// Asks the store by Head where `object` does not say its checksum. Blocking; Cancelled soon after a stop.
  static absl::StatusOr<WholeCheck> Begin(ObjectStore& store, const ObjectInfo& object, std::stop_token stop = {});

  /// Pieces in order.
  void Update(ByteSpan bytes);
  /// DataLoss when the bytes are not those of the store's checksum. Once.
  absl::Status Finish();

 private:
  std::string uri_;
  std::optional<ObjectChecksum> expected_;
  std::optional<DigestStream> digest_;
};

}  // namespace millrace
