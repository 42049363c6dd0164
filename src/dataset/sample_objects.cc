#include "dataset/sample_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataset/folder_join.h"
#include "dataset/token_files.h"
#include "shard/data_kind.h"
#include "shard/mds_format.h"
#include "shard/sample_name.h"
#include "shard/token_format.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr size_t kObjectsAhead = 16'000;  // so that most data sets have a total for their progress
constexpr uint64_t kMaxCheckedObjects = 10'000;

absl::Status Mixed(const DatasetPlace& data, std::string_view one, std::string_view other, bool tokens) {
  const auto of_shards = [&](std::string_view key) { return ShardKind(key).has_value(); };
  const bool tar = ShardKind(one) == DataKind::kTar || ShardKind(other) == DataKind::kTar;
  const std::string_view what = of_shards(one) && of_shards(other) ? "shards of several kinds"
                                : tokens                           ? "both token files and others"
                                : tar                              ? "both tar shards and other files"
                                                                   : "both shards and other files";
  // A pattern that takes one of them.
  const std::string_view shards = of_shards(one) ? one : of_shards(other) ? other : one;
  const size_t dot = shards.rfind('.');
  const std::string pattern = data.store->Uri(
      fmt::format("{}*{}", shards.substr(0, shards.rfind('/') + 1), dot == shards.npos ? "" : shards.substr(dot)));
  return absl::InvalidArgumentError(fmt::format(
      "{}: holds {} ('{}' and '{}'); give the URI of a folder with only one of them, or a pattern such as '{}'",
      data.uri, what, data.store->Uri(std::string(one)), data.store->Uri(std::string(other)), pattern));
}

// `arrays`: how the index was made that does not match.
// For the command that builds the index of plain arrays again. An index whose arrays are one sample each does not tell
// what LENGTH was.
std::string TokensOption(const Index& index, const std::optional<TokenArrays>& arrays) {
  if (!arrays) return "";
  return index.size() > index.objects() ? fmt::format("--tokens {} ", ToString(*arrays)) : "--tokens LENGTH[:TYPE] ";
}

absl::Status Changed(const DatasetPlace& data, const std::string& tokens, std::string_view key, std::string_view how) {
  return absl::FailedPreconditionError(
      fmt::format("{}: {}, so the index does not match the data any more; build it again: millrace index {}{}",
                  data.store->Uri(data.Key(key)), how, tokens, data.UriInShell()));
}

absl::Status Incomplete(const DatasetPlace& data) {
  return absl::FailedPreconditionError(fmt::format(
      "{}: this data set is being written, or writing it was interrupted; run the same `millrace pack`, or the program "
      "with the ShardWriter, again to complete it",
      data.uri));
}

}  // namespace

bool IsHiddenKey(std::string_view key) {
  while (!key.empty()) {
    const std::string_view component = key.substr(0, key.find('/'));
    if (component.starts_with('.') && component != "." && component != "..") return true;
    key.remove_prefix(std::min(key.size(), component.size() + 1));
  }
  return false;
}

std::optional<std::string_view> WhyPassedOver(const ObjectInfo& object, std::string_view key) {
  if (key.empty()) return "";
  if (key.ends_with('/')) return object.size > 0 ? "the marker of a folder, with bytes in it" : "";
  if (IsHiddenKey(key)) {
    const bool own = key.starts_with(kDatasetFolder) || key.find(fmt::format("/{}", kDatasetFolder)) != key.npos;
    return own ? "" : "hidden: a part of its name begins with a dot";
  }
  if (IsToolFile(key)) return "a program has left it there for itself";
  if (IsPartOfDownload(key)) return "a part of a download";
  if (IsDesktopFile(key)) return "a desktop has left it there";
  return std::nullopt;
}

absl::Status SampleObjects::CheckListed(const ObjectInfo& object, std::string_view key) {
  if (object.key <= last_key_) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the store lists it after {}, not in bytewise order of keys; such a store "
                    "(e.g. a directory bucket) cannot be indexed",
                    data_.store->Uri(object.key), last_key_));
  }
  return key == kIncompleteName ? Incomplete(data_) : absl::OkStatus();
}

// A read-only mount does not list the mark, but has it.
absl::Status SampleObjects::CheckComplete() const {
  if (!data_.store->traits().is_folder()) return absl::OkStatus();
  const absl::Status mark = HeadBlocking(*data_.store, data_.Key(kIncompleteName), stop_).status();
  if (mark.ok()) return Incomplete(data_);
  return absl::IsNotFound(mark) ? absl::OkStatus() : mark;
}

absl::Status SampleObjects::Take(ObjectInfo object) {
  std::string key = object.key.substr(data_.Key("").size());
  RETURN_IF_ERROR(CheckListed(object, key));
  const std::string before = std::exchange(last_key_, object.key);
  if (const std::optional<std::string_view> why = WhyPassedOver(object, key)) {
    if (!why->empty()) skipped_.Add(key, *why);
    return absl::OkStatus();
  }
  if (listing_ == Listing::kTokenArrays) return TakeTokenArray(std::move(key), std::move(object));
  if (const std::string_view plain = CompressedShard(key); !plain.empty()) {
    // Beside the shard itself, which lies right before, it says nothing more.
    if (ShardKind(plain) && before == data_.Key(plain)) {
      skipped_.Add(key, "a compressed copy of the shard beside it");
      return absl::OkStatus();
    }
    if (!raw_sample_.empty()) return Mixed(data_, raw_sample_, object.key, false);  // that is nothing for `pack`
    return absl::InvalidArgumentError(fmt::format(
        "{}: a compressed shard, of which samples cannot be read singly; decompress it, or make plain shards of all "
        "with `millrace pack {} DST` (`--scratch DIR` if the cache folder has too little room for them decompressed)",
        data_.store->Uri(object.key), data_.UriInShell()));
  }
  if (key.ends_with(kParquetSuffix)) {
    if (!raw_sample_.empty()) return Mixed(data_, raw_sample_, object.key, false);
    if (!first_sample_.empty() && IsCompanion(kind_, key)) {
      PassOverCompanion(key);
      return absl::OkStatus();
    }
    if (first_sample_.empty() && undecided_.size() < kObjectsAhead) {  // shards may follow
      undecided_.push_back(std::move(object));
      return absl::OkStatus();
    }
  }
  if (const std::string_view advice = ForeignFileAdvice(key); !advice.empty())
    return absl::InvalidArgumentError(fmt::format("{}: {}", data_.store->Uri(object.key), advice));
  if (const std::optional<DataKind> kind = ShardKind(key)) return Add(std::move(key), std::move(object), *kind);
  if (!SplitObjectName(key)) {
    skipped_.Add(key, "its name has no extension");
    return absl::OkStatus();
  }
  if (IsDocument(key)) {
    if (first_sample_.empty() && documents_.size() < kObjectsAhead) {
      documents_.push_back(std::move(object));
    } else {
      skipped_.Add(key, kDocument);
    }
    return absl::OkStatus();
  }
  const bool decided = !first_sample_.empty();
  const bool of_pair = IsMegatronBin(key) || IsMegatronIdx(key);
  if (of_pair && (listing_ == Listing::kTokenPairs || (decided && kind_ == DataKind::kTokens)))
    return Add(std::move(key), std::move(object), DataKind::kTokens);
  if (decided && IsCompanion(kind_, key)) {
    PassOverCompanion(key);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool ends_pair, EndsPair(object, key));
  if (ends_pair && decided) {
    // The other one is what came before the pair, or within it.
    const bool before_pair = first_sample_ != BinOfIdx(object.key);
    return Mixed(data_, before_pair ? first_sample_ : before, object.key, true);
  }
  if (!decided && (of_pair || IsCompanion(key)) && undecided_.size() < kObjectsAhead) {
    undecided_.push_back(std::move(object));
    return ends_pair ? AddUndecidedPairs() : absl::OkStatus();
  }
  RETURN_IF_ERROR(AddUndecided());
  if (IsMegatronBin(key)) last_bin_ = object.key;
  return Add(std::move(key), std::move(object), DataKind::kRawObjects);
}

// Whatever else lies there, the user has said what the arrays are.
absl::Status SampleObjects::TakeTokenArray(std::string key, ObjectInfo object) {
  if (IsTokenArray(key)) {
    if (IsMegatronBin(key)) last_bin_ = object.key;
    return Add(std::move(key), std::move(object), DataKind::kTokens);
  }
  ASSIGN_OR_RETURN(const bool ends_pair, EndsPair(object, key));
  if (!ends_pair) {
    skipped_.Add(key, "no array of tokens");
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("{}: says where the sequences of the .bin beside it end, as Megatron has it: index them without "
                  "--tokens, or move it away",
                  data_.store->Uri(object.key)));
}

// Whether the object is the .idx of a .bin that came before and may be one of Megatron's.
absl::StatusOr<bool> SampleObjects::EndsPair(const ObjectInfo& object, std::string_view key) {
  if (looked_into_ || !IsMegatronIdx(key) || (!first_sample_.empty() && last_bin_.empty())) return false;
  const std::string bin = BinOfIdx(object.key);
  const auto found =
      std::lower_bound(undecided_.begin(), undecided_.end(), bin,
                       [](const ObjectInfo& other, const std::string& wanted) { return other.key < wanted; });
  if (bin != last_bin_ && (found == undecided_.end() || found->key != bin)) return false;
  ASSIGN_OR_RETURN(const bool ends_pair, BeginsAsMegatron(*data_.store, object, stop_));
  looked_into_ = !ends_pair;
  return ends_pair;
}

// They are pairs of Megatron: the last of them was looked into.
absl::Status SampleObjects::AddUndecidedPairs() {
  const std::string pair = undecided_.back().key;
  for (ObjectInfo& object : std::exchange(undecided_, {})) {
    std::string key = object.key.substr(data_.Key("").size());
    if (!IsMegatronBin(object.key) && !IsMegatronIdx(object.key)) {
      if (!IsCompanion(DataKind::kTokens, key)) return Mixed(data_, object.key, pair, true);
      skipped_.Add(key, "it belongs to the token files, and holds none");
      continue;
    }
    RETURN_IF_ERROR(Add(std::move(key), std::move(object), DataKind::kTokens));
  }
  return absl::OkStatus();
}

void SampleObjects::PassOverCompanion(std::string_view key) {
  skipped_.Add(key, SkippedObjects::kCompanion);
  if (kind_ == DataKind::kMds && key.substr(key.rfind('/') + 1) == kMdsIndexName) companions_.emplace_back(key);
}

// They come before a raw object, or nothing else came: so they are raw objects, too.
absl::Status SampleObjects::AddUndecided() {
  for (ObjectInfo& object : std::exchange(undecided_, {})) {
    std::string key = object.key.substr(data_.Key("").size());
    if (IsMegatronBin(key)) last_bin_ = object.key;
    if (const std::string_view advice = ForeignFileAdvice(key); !advice.empty())
      return absl::InvalidArgumentError(fmt::format("{}: {}", data_.store->Uri(object.key), advice));
    RETURN_IF_ERROR(Add(std::move(key), std::move(object), DataKind::kRawObjects));
  }
  return absl::OkStatus();
}

// Nothing else came.
absl::Status SampleObjects::AddDocuments() {
  if (!first_sample_.empty()) return absl::OkStatus();
  for (ObjectInfo& object : std::exchange(documents_, {})) {
    std::string key = object.key.substr(data_.Key("").size());
    RETURN_IF_ERROR(Add(std::move(key), std::move(object), DataKind::kRawObjects));
  }
  return absl::OkStatus();
}

absl::Status SampleObjects::Add(std::string key, ObjectInfo object, DataKind kind) {
  if (first_sample_.empty()) {
    const std::vector<ObjectInfo> companions = std::exchange(undecided_, {});
    for (const ObjectInfo& companion : companions) {
      if (!IsCompanion(kind, companion.key)) return Mixed(data_, companion.key, object.key, false);
    }
    kind_ = kind;
    first_sample_ = object.key;
    for (const ObjectInfo& companion : companions) PassOverCompanion(companion.key.substr(data_.Key("").size()));
    for (const ObjectInfo& document : std::exchange(documents_, {}))
      skipped_.Add(document.key.substr(data_.Key("").size()), kDocument);
  } else if (kind != kind_) {
    return Mixed(data_, first_sample_, object.key, kind == DataKind::kTokens || kind_ == DataKind::kTokens);
  }
  if (kind == DataKind::kRawObjects && raw_sample_.empty()) raw_sample_ = object.key;
  const bool is_read = kind != DataKind::kTokens || !IsMegatronIdx(key);
  listed_bytes_ += is_read ? object.size : 0;
  if (kind == DataKind::kRawObjects) {
    object.key = std::move(key);
    groups_.Add(std::move(object));
    return absl::OkStatus();
  }
  ahead_.push_back({.key = std::move(key), .size = object.size, .etag = std::move(object.etag)});
  return absl::OkStatus();
}

absl::Status SampleObjects::ListAhead() {
  if (!std::exchange(begun_, true)) RETURN_IF_ERROR(CheckComplete());
  if (data_.join != nullptr && !std::exchange(listed_all_, true)) {
    ASSIGN_OR_RETURN(std::vector<ObjectInfo> samples, data_.join->List(data_, stop_, &skipped_));
    for (ObjectInfo& sample : samples) {
      listed_bytes_ += sample.size;
      ahead_.push_back({.key = std::move(sample.key), .size = sample.size, .etag = std::move(sample.etag)});
    }
  }
  while (!listed_all_ && ahead_.size() < kObjectsAhead) {
    ASSIGN_OR_RETURN(std::vector<ObjectInfo> objects, lister_.Next());
    for (ObjectInfo& object : objects) RETURN_IF_ERROR(Take(std::move(object)));
    listed_all_ = objects.empty();
    if (listed_all_) {
      RETURN_IF_ERROR(AddUndecided());
      RETURN_IF_ERROR(AddDocuments());
      groups_.End();
    }
    while (std::optional<ObjectInfo> sample = groups_.Next())
      ahead_.push_back({.key = std::move(sample->key), .size = sample->size, .etag = std::move(sample->etag)});
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

absl::StatusOr<Listing> ListingOf(const Index& index) {
  if (index.kind() != DataKind::kTokens) return Listing::kByName;
  ASSIGN_OR_RETURN(const std::optional<TokenArrays> arrays, TokenArraysOf(index));
  return arrays ? Listing::kTokenArrays : Listing::kTokenPairs;
}

absl::Status CheckObjects(const DatasetPlace& data, const Index& index, const std::stop_token& stop) {
  if (index.objects() > kMaxCheckedObjects) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<TokenArrays> arrays, TokenArraysOf(index));
  const std::string tokens = TokensOption(index, arrays);
  ASSIGN_OR_RETURN(const Listing listing, ListingOf(index));
  SampleObjects stored(data, stop, listing);
  IndexedObject expected;
  uint64_t replaced = 0;
  absl::Status first_replaced;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &expected));
    ASSIGN_OR_RETURN(const std::optional<IndexedObject> found, stored.Next());
    if (!found || found->key > expected.key) return Changed(data, tokens, expected.key, "it is gone");
    if (found->key < expected.key) return Changed(data, tokens, found->key, "it was added");
    if (found->size != expected.size) {
      return Changed(data, tokens, expected.key, fmt::format("its size was {} and is {}", expected.size, found->size));
    }
    if (found->etag == expected.etag) continue;
    ++replaced;
    first_replaced.Update(
        Changed(data, tokens, expected.key,
                fmt::format("it was replaced (ETag {}, now {}) or is a copy", expected.etag, found->etag)));
  }
  ASSIGN_OR_RETURN(const std::optional<IndexedObject> more, stored.Next());
  if (more) return Changed(data, tokens, more->key, "it was added");
  if (replaced > 1 && replaced == index.objects()) {
    return absl::NotFoundError(fmt::format("{}: its index is that of the data set it was copied from", data.uri));
  }
  return first_replaced;
}

}  // namespace millrace
