#include "store/object_store.h"

#include <memory>
#include <utility>

#include "store/status_gatherer.h"

namespace millrace {

void ObjectStore::Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions, PutCallback done) {
  done(absl::UnimplementedError(Uri(key) + ": cannot be copied from " + from.Uri(source.key) + " by the store"));
}

void ObjectStore::DeleteMany(std::vector<std::string> keys, DeleteManyCallback done) {
  auto gather = std::make_shared<StatusGatherer>(keys.size(), std::move(done));
  for (size_t i = 0; i < keys.size(); ++i) {
    Delete(std::move(keys[i]), [gather, i](absl::Status status) { gather->Set(i, std::move(status)); });
  }
}

absl::Status ObjectStore::RemoveTemporary(const std::string& /*prefix*/) {
  return absl::OkStatus();
}

}  // namespace millrace
