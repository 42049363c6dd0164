#include "dataset/sample_objects.h"

#include <fmt/format.h>

#include <utility>

#include "shard/data_kind.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr size_t kObjectsAhead = 16'000;  // so that most data sets have a total for their progress
constexpr uint64_t kMaxCheckedObjects = 10'000;

absl::Status Mixed(const Location& data, std::string_view one, std::string_view other) {
  const auto of_shards = [&](std::string_view key) { return ShardKind(key).has_value(); };
  const bool tar = ShardKind(one) == DataKind::kTar || ShardKind(other) == DataKind::kTar;
  const std::string_view what = of_shards(one) && of_shards(other) ? "shards of several kinds"
                                : tar                              ? "both tar shards and other files"
                                                                   : "both shards and other files";
  return absl::InvalidArgumentError(fmt::format(
      "{}: holds {} ('{}' and '{}'); give the URI of a folder with only one of them", data.store->Uri(data.Key("")),
      what, data.store->Uri(std::string(one)), data.store->Uri(std::string(other))));
}

absl::Status Changed(const Location& data, std::string_view key, std::string_view how) {
  return absl::FailedPreconditionError(
      fmt::format("{}: {}, so the index does not match the data any more; build it anew: millrace index {}",
                  data.store->Uri(data.Key(key)), how, data.store->Uri(data.Key(""))));
}

}  // namespace

bool IsHiddenKey(std::string_view key) {
  while (!key.empty()) {
    const std::string_view component = key.substr(0, key.find('/'));
    if (component.starts_with('.') && component != ".") return true;
    key.remove_prefix(std::min(key.size(), component.size() + 1));
  }
  return false;
}

absl::Status SampleObjects::CheckListed(const ObjectInfo& object, std::string_view key) {
  if (object.key <= last_key_) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the store lists it after {}, not in bytewise order of keys; such a store "
                    "(e.g. a directory bucket) cannot be indexed",
                    data_.store->Uri(object.key), last_key_));
  }
  if (key == kIncompleteName) {
    return absl::FailedPreconditionError(
        fmt::format("{}: this data set is being packed, or packing it was interrupted; run the same `millrace pack` "
                    "again to complete it",
                    data_.store->Uri(data_.Key(""))));
  }
  return absl::OkStatus();
}

absl::Status SampleObjects::Take(ObjectInfo object) {
  std::string key = object.key.substr(data_.Key("").size());
  RETURN_IF_ERROR(CheckListed(object, key));
  const std::string before = std::exchange(last_key_, object.key);
  if (key.empty() || key.ends_with('/') || IsHiddenKey(key)) return absl::OkStatus();
  if (const std::string_view plain = CompressedShard(key); !plain.empty()) {
    // Beside the shard itself, which lies right before, it says nothing more.
    if (ShardKind(plain) && before == data_.Key(plain)) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format(
        "{}: a compressed shard; samples can be read singly only from plain ones: decompress it, or let `millrace "
        "pack` make plain shards of them all",
        data_.store->Uri(object.key)));
  }
  if (const std::optional<DataKind> kind = ShardKind(key)) return Add(std::move(key), std::move(object), *kind);
  if (!SplitSampleName(key)) return absl::OkStatus();
  const bool decided = !first_sample_.empty();
  if (decided && IsCompanion(kind_, key)) {
    PassOver(key);
    return absl::OkStatus();
  }
  if (!decided && IsCompanion(key) && undecided_.size() < kObjectsAhead) {
    undecided_.push_back(std::move(object));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(AddUndecided());
  return Add(std::move(key), std::move(object), DataKind::kRawObjects);
}

void SampleObjects::PassOver(std::string_view key) {
  if (kind_ == DataKind::kMds) companions_.emplace_back(key);
}

// They come before a raw object, or nothing else came: so they are raw objects, too.
absl::Status SampleObjects::AddUndecided() {
  for (ObjectInfo& object : std::exchange(undecided_, {})) {
    std::string key = object.key.substr(data_.Key("").size());
    RETURN_IF_ERROR(Add(std::move(key), std::move(object), DataKind::kRawObjects));
  }
  return absl::OkStatus();
}

absl::Status SampleObjects::Add(std::string key, ObjectInfo object, DataKind kind) {
  if (first_sample_.empty()) {
    const std::vector<ObjectInfo> companions = std::exchange(undecided_, {});
    for (const ObjectInfo& companion : companions) {
      if (!IsCompanion(kind, companion.key)) return Mixed(data_, companion.key, object.key);
    }
    kind_ = kind;
    first_sample_ = object.key;
    for (const ObjectInfo& companion : companions) PassOver(companion.key.substr(data_.Key("").size()));
  } else if (kind != kind_) {
    return Mixed(data_, first_sample_, object.key);
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
    if (listed_all_) RETURN_IF_ERROR(AddUndecided());
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
