#include "devstore/upload_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/time/clock.h"
#include "devstore/s3_error.h"

namespace millrace {

int64_t NowNs() {
  return absl::GetCurrentTimeNanos();
}

void UploadTable::Insert(Upload upload) {
  std::lock_guard lock(mutex_);
  std::string id = upload.id;
  uploads_.insert_or_assign(std::move(id), std::move(upload));
}

absl::StatusOr<std::shared_ptr<const Content>> UploadTable::PutPart(const std::string& id, int number,
                                                                    UploadPart part) {
  std::lock_guard lock(mutex_);
  const auto found = uploads_.find(id);
  if (found == uploads_.end()) return NoSuchUpload(id);
  return std::exchange(found->second.parts[number], std::move(part)).content;
}

bool UploadTable::Contains(const std::string& id) const {
  std::lock_guard lock(mutex_);
  return uploads_.contains(id);
}

absl::StatusOr<Upload> UploadTable::Find(const std::string& bucket, const std::string& key,
                                         const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.bucket != bucket || found->second.key != key) return NoSuchUpload(id);
  return found->second;
}

std::vector<Upload> UploadTable::List(const std::string& bucket) const {
  std::vector<Upload> listed;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, upload] : uploads_) {
      if (upload.bucket == bucket) {
        listed.push_back(Upload{.id = id,
                                .bucket = bucket,
                                .key = upload.key,
                                .attributes = upload.attributes,
                                .initiated_ns = upload.initiated_ns,
                                .parts = {}});
      }
    }
  }
  std::sort(listed.begin(), listed.end(), [](const Upload& a, const Upload& b) {
    return std::tie(a.key, a.initiated_ns, a.id) < std::tie(b.key, b.initiated_ns, b.id);
  });
  return listed;
}

absl::Status UploadTable::Remove(const std::string& id) {
  std::unordered_map<std::string, Upload>::node_type removed;  // destroyed without the lock: it may delete files
  std::lock_guard lock(mutex_);
  removed = uploads_.extract(id);
  return removed.empty() ? NoSuchUpload(id) : absl::OkStatus();
}

}  // namespace millrace
