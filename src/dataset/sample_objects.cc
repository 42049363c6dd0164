#include "dataset/sample_objects.h"

#include <fmt/format.h>

#include <utility>

#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr size_t kObjectsAhead = 16'000;  // so that most data sets have a total for their progress
constexpr uint64_t kMaxCheckedObjects = 10'000;

bool IsHidden(std::string_view key) {
  while (!key.empty()) {
    const std::string_view component = key.substr(0, key.find('/'));
    if (component.starts_with('.') && component != ".") return true;
    key.remove_prefix(std::min(key.size(), component.size() + 1));
  }
  return false;
}

bool IsCompressedTar(std::string_view key) {
  for (const std::string_view end : {".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"}) {
    if (key.ends_with(end)) return true;
  }
  return false;
}

absl::Status Changed(const Location& data, std::string_view key, std::string_view how) {
  return absl::FailedPreconditionError(
      fmt::format("{}: {}, so the index does not match the data any more; build it anew: millrace index {}",
                  data.store->Uri(data.Key(key)), how, data.store->Uri(data.Key(""))));
}

}  // namespace

absl::Status SampleObjects::Take(ObjectInfo object) {
  if (object.key <= last_key_) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the store lists it after {}, not in bytewise order of keys; such a store "
                    "(e.g. a directory bucket) cannot be indexed",
                    data_.store->Uri(object.key), last_key_));
  }
  last_key_ = object.key;
  std::string key = object.key.substr(data_.Key("").size());
  if (key == kIncompleteName) {
    return absl::FailedPreconditionError(
        fmt::format("{}: this data set is being packed, or packing it was interrupted; run `millrace pack "
                    "--force` again to complete it",
                    data_.store->Uri(data_.Key(""))));
  }
  if (key.empty() || key.ends_with('/') || IsHidden(key)) return absl::OkStatus();
  if (IsCompressedTar(key)) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a compressed shard; samples can be read singly only from plain tar: decompress it",
                    data_.store->Uri(object.key)));
  }
  const DataKind kind = key.ends_with(".tar") ? DataKind::kTar : DataKind::kRawObjects;
  if (kind == DataKind::kRawObjects && !SplitSampleName(key)) return absl::OkStatus();
  if (first_sample_.empty()) {
    kind_ = kind;
    first_sample_ = object.key;
  } else if (kind != kind_) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: holds both tar shards and other files ('{}' and '{}'); give the URI of a folder with only one of them",
        data_.store->Uri(data_.Key("")), data_.store->Uri(first_sample_), data_.store->Uri(object.key)));
  }
  listed_bytes_ += object.size;
  ahead_.push_back({.key = std::move(key), .size = object.size, .etag = std::move(object.etag)});
  return absl::OkStatus();
}

absl::Status SampleObjects::ListAhead() {
  while (!listed_all_ && ahead_.size() < kObjectsAhead) {
    ASSIGN_OR_RETURN(std::vector<ObjectInfo> objects, lister_.Next());
    for (ObjectInfo& object : objects) RETURN_IF_ERROR(Take(std::move(object)));
    listed_all_ = objects.empty();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<IndexedObject>> SampleObjects::Next() {
  if (ahead_.size() + 1000 <= kObjectsAhead) RETURN_IF_ERROR(ListAhead());
  if (ahead_.empty()) return std::nullopt;
  IndexedObject object = std::move(ahead_.front());
  ahead_.pop_front();
  return object;
}

absl::Status CheckObjects(const Location& data, const Index& index, const std::stop_token& stop) {
  if (index.objects() > kMaxCheckedObjects) return absl::OkStatus();
  SampleObjects stored(data, stop);
  IndexedObject expected;
  uint64_t replaced = 0;
  absl::Status first_replaced;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &expected));
    ASSIGN_OR_RETURN(const std::optional<IndexedObject> found, stored.Next());
    if (!found || found->key > expected.key) return Changed(data, expected.key, "it is gone");
    if (found->key < expected.key) return Changed(data, found->key, "it was added");
    if (found->size != expected.size) {
      return Changed(data, expected.key, fmt::format("its size was {} and is {}", expected.size, found->size));
    }
    if (found->etag == expected.etag) continue;
    ++replaced;
    first_replaced.Update(Changed(
        data, expected.key, fmt::format("it was replaced (ETag {}, now {}) or is a copy", expected.etag, found->etag)));
  }
  ASSIGN_OR_RETURN(const std::optional<IndexedObject> more, stored.Next());
  if (more) return Changed(data, more->key, "it was added");
  if (replaced > 1 && replaced == index.objects()) {
    return absl::NotFoundError(
        fmt::format("{}: its index is that of the data set it was copied from", data.store->Uri(data.Key(""))));
  }
  return first_replaced;
}

}  // namespace millrace
