#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "devstore/storage.h"

namespace millrace {

/// Holds the unfinished uploads of a storage. Thread-safe.
class UploadTable {
 public:
  void Insert(Upload upload);  // with its id
  /// Returns the content of the part that it replaces, or nullptr.
  absl::StatusOr<std::shared_ptr<const Content>> PutPart(const std::string& id, int number, UploadPart part);
  bool Contains(const std::string& id) const;
  absl::StatusOr<Upload> Find(const std::string& bucket, const std::string& key, const std::string& id) const;
  std::vector<Upload> List(const std::string& bucket) const;
  absl::Status Remove(const std::string& id);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Upload> uploads_;
};

}  // namespace millrace
