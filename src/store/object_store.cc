#include "store/object_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "store/joined_objects.h"
#include "store/stream_writer.h"

namespace millrace {

std::string ObjectStore::Uri(std::string_view key) const {
  if (IsJoinedKey(key)) return absl::StrCat(traits_.root, JoinedName(key));
  return absl::StrCat(traits_.root, ToAbsl(key));
}

bool ObjectStore::CopiesFrom(const ObjectStore& other) const {
  return traits_.copies_among != nullptr && traits_.copies_among == other.traits_.copies_among;
}

void ObjectStore::Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions, PutCallback done) {
  done(absl::UnimplementedError(Uri(key) + ": cannot be copied from " + from.Uri(source.key) + " by the store"));
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> ObjectStore::Write(std::string key, PutOptions options) {
  return StreamWriter::Open(*this, std::move(key), std::move(options));
}

absl::Status ObjectStore::RemoveTemporary(const std::string& /*prefix*/) {
  return absl::OkStatus();
}

}  // namespace millrace
