#include "dataset/sample_objects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "dataset/folder_join.h"
#include "dataset/token_files.h"
#include "shard/data_kind.h"
#include "shard/mds_format.h"
#include "shard/sample_name.h"
#include "shard/side_files.h"
#include "shard/token_format.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr size_t kObjectsAhead = 16'000;  // so that most data sets have a total for their progress
constexpr uint64_t kMaxCheckedObjects = 10'000;
constexpr uint64_t kForeignOfShard = 4;      // other files for each shard; more than these may be the samples
constexpr uint64_t kImagesOfContainer = 20;  // beside so many images, a file of many samples is none of the samples
constexpr std::string_view kIdxSuffix = ".idx";
constexpr size_t kMostNames = 8;  // patterns of names, in a message

// Returns a pattern for the names of shards such as this: "*-of-?????" of "train.tfrecord-00000-of-00002", "*.tar" of
// "a.tar".
std::string PatternOfName(std::string_view key) {
  const std::string_view name = key.substr(key.rfind('/') + 1);
  const size_t numbered = name.rfind("-of-");
  if (numbered != name.npos && name.find('.', numbered) == name.npos)
    return fmt::format("*-of-{:?>{}}", "", name.size() - numbered - 4);
  const std::string_view plain = WithoutTfRecordNumber(name);
  const size_t dot = plain.rfind('.');
  return fmt::format("*{}{}", dot == plain.npos ? std::string_view() : plain.substr(dot),
                     plain.size() < name.size() ? ".[0-9]*" : "");
}

// Returns a pattern that matches all of these, in folders of any depth.
std::string PatternOf(const DatasetPlace& data, const std::set<std::string>& names) {
  return data.store->Uri(
      data.Key(names.size() == 1 ? "**/" + *names.begin() : fmt::format("**/{{{}}}", fmt::join(names, ","))));
}

// Returns true for a file of many samples, which are not read singly.
bool IsContainer(std::string_view key) {
  return !CompressedShard(key).empty() || !ForeignFileAdvice(key).empty() || !MisnamedShardAdvice(key).empty();
}

// Refuses a mix of objects. `shards` are patterns for the names of the shards that came so far.
absl::Status Mixed(const DatasetPlace& data, std::string_view one, std::string_view other, bool tokens,
                   const std::set<std::string>& shards) {
  const auto of_shards = [&](std::string_view key) { return ShardKind(key).has_value(); };
  const bool tar = ShardKind(one) == DataKind::kTar || ShardKind(other) == DataKind::kTar;
  const std::string_view what = of_shards(one) && of_shards(other) ? "shards of several kinds"
                                : tokens                           ? "both token files and others"
                                : tar                              ? "both tar shards and other files"
                                                                   : "both shards and other files";
  // The pattern matches only one of them.
  const std::string_view taken = of_shards(one) ? one : of_shards(other) ? other : one;
  const std::string pattern = PatternOf(data, shards.empty() ? std::set{PatternOfName(taken)} : shards);
  return absl::InvalidArgumentError(fmt::format(
      "{}: holds {} ('{}' and '{}'); give the URI of a folder with only one of them, or a pattern such as '{}'",
      data.uri, what, data.store->Uri(std::string(one)), data.store->Uri(std::string(other)), pattern));
}

// Returns the option for the command that builds the index of plain arrays again. `arrays` says how the index that does
// not match was made. If each array is one sample of the index, LENGTH is not known.
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

// Checks for the mark, which a read-only mount does not list, but has.
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
  if (const std::string_view plain = CompressedShard(key);
      !plain.empty() && ShardKind(plain) && before == data_.Key(plain)) {
    // The shard itself lies right before, so the copy adds nothing.
    skipped_.Add(key, "a compressed copy of the shard beside it");
    return absl::OkStatus();
  }
  if (IsContainer(key)) return TakeContainer(std::move(object), key);
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
    PassOverCompanion(key, object);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool ends_pair, EndsPair(object, key));
  if (ends_pair && decided) {
    // The other object is the one that came before the pair, or within it.
    const bool before_pair = first_sample_ != BinOfIdx(object.key);
    return Mixed(data_, before_pair ? first_sample_ : before, object.key, true, shard_names_);
  }
  if (!decided && (of_pair || IsCompanion(key)) && undecided_.size() < kObjectsAhead) {
    undecided_.push_back(std::move(object));
    return ends_pair ? AddUndecidedPairs() : absl::OkStatus();
  }
  RETURN_IF_ERROR(AddUndecided());
  if (IsMegatronBin(key)) last_bin_ = object.key;
  return Add(std::move(key), std::move(object), DataKind::kRawObjects);
}

// Takes a file of many samples: it may lie beside shards, and beside images.
absl::Status SampleObjects::TakeContainer(ObjectInfo object, std::string_view key) {
  if (first_sample_.empty() && undecided_.size() < kObjectsAhead) {
    undecided_.push_back(std::move(object));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(AddUndecided());
  if (!first_sample_.empty() && IsCompanion(kind_, key)) {
    PassOverCompanion(key, object);
    return absl::OkStatus();
  }
  // All objects so far are raw, as many as are listed ahead. If no image is among them, none is expected.
  if (raw_sample_.empty() || images_ == 0) return RefuseContainer(object.key);
  PassOverContainer(object.key);
  return absl::OkStatus();
}

// The images are not counted yet here.
void SampleObjects::PassOverContainer(const std::string& object_key) {
  if (containers_++ == 0) first_container_ = object_key;
  skipped_.Add(object_key.substr(data_.Key("").size()), kContainerBesideImages);
}

absl::Status SampleObjects::CheckContainers() const {
  return containers_ * kImagesOfContainer > images_ ? RefuseContainer(first_container_) : absl::OkStatus();
}

absl::Status SampleObjects::RefuseContainer(const std::string& object_key) const {
  const std::string uri = data_.store->Uri(object_key);
  const std::string_view key = std::string_view(object_key).substr(data_.Key("").size());
  if (!image_names_.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: holds files of many samples, and images ('{}' and '{}'), fewer than {} for each such file; give a folder "
        "with only one of them, or a pattern such as '{}' or '{}'",
        data_.uri, uri, data_.store->Uri(first_image_), kImagesOfContainer, PatternOf(data_, {PatternOfName(key)}),
        PatternOf(data_, image_names_)));
  }
  for (const std::string_view advice : {ForeignFileAdvice(key), MisnamedShardAdvice(key)}) {
    if (!advice.empty()) return absl::InvalidArgumentError(fmt::format("{}: {}", uri, advice));
  }
  if (!raw_sample_.empty())
    return Mixed(data_, raw_sample_, object_key, false, shard_names_);  // that is nothing for `pack`
  return absl::InvalidArgumentError(fmt::format(
      "{}: a compressed shard, whose samples cannot be read singly; decompress it, or make plain shards of all "
      "with `millrace pack {} DST`. If the cache folder has too little room for them, add `--scratch DIR`",
      uri, data_.UriInShell()));
}

// Takes an array. The user has said what the arrays are, so other objects do not matter.
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

// Returns true if the object is the .idx of a .bin that came before and may be one of Megatron's.
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

// Adds the undecided objects as pairs of Megatron: the last .idx was read.
absl::Status SampleObjects::AddUndecidedPairs() {
  const std::string pair = undecided_.back().key;
  for (ObjectInfo& object : std::exchange(undecided_, {})) {
    std::string key = object.key.substr(data_.Key("").size());
    if (!IsMegatronBin(object.key) && !IsMegatronIdx(object.key)) {
      if (!IsCompanion(DataKind::kTokens, key)) return Mixed(data_, object.key, pair, true, shard_names_);
      skipped_.Add(key, "it belongs to the token files, and holds none");
      continue;
    }
    RETURN_IF_ERROR(Add(std::move(key), std::move(object), DataKind::kTokens));
  }
  return absl::OkStatus();
}

void SampleObjects::PassOverCompanion(std::string_view key, const ObjectInfo& object) {
  skipped_.Add(key, MisnamedShardAdvice(key).empty() ? SkippedObjects::kCompanion : kMisnamedShard);
  if (MayBeSample(key) && foreign_++ == 0) first_foreign_ = key;
  if (kind_ == DataKind::kMds && key.substr(key.rfind('/') + 1) == kMdsIndexName) companions_.emplace_back(key);
  if (kind_ == DataKind::kTar && key.ends_with(kIdxSuffix)) idx_.emplace(key, object);
  if (kind_ == DataKind::kTar && key.ends_with(".json") && json_.size() <= kMostJson) json_.push_back(object);
}

const ObjectInfo* SampleObjects::FindIdx(const std::string& key) const {
  const auto found = idx_.find(key);
  return found == idx_.end() ? nullptr : &found->second;
}

// If there are as many other files as these, they may well be the samples.
absl::Status SampleObjects::CheckCompanions() const {
  if (shards_ == 0 || foreign_ <= kForeignOfShard * (shards_ + 1)) return absl::OkStatus();
  return Mixed(data_, first_sample_, data_.Key(first_foreign_), false, shard_names_);
}

// Adds the undecided objects. They come before a raw object, or nothing else came: so they are raw objects, too.
absl::Status SampleObjects::AddUndecided() {
  std::vector<ObjectInfo> objects = std::exchange(undecided_, {});
  const auto key_of = [this](const ObjectInfo& object) { return object.key.substr(data_.Key("").size()); };
  const auto containers = std::stable_partition(objects.begin(), objects.end(),
                                                [&](const ObjectInfo& object) { return !IsContainer(key_of(object)); });
  for (auto object = objects.begin(); object != containers; ++object) {
    std::string key = key_of(*object);
    if (IsMegatronBin(key)) last_bin_ = object->key;
    RETURN_IF_ERROR(Add(std::move(key), std::move(*object), DataKind::kRawObjects));
  }
  for (auto object = containers; object != objects.end(); ++object) {
    if (images_ == 0) return RefuseContainer(object->key);
    PassOverContainer(object->key);
  }
  return absl::OkStatus();
}

// Adds documents as samples, if nothing else came.
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
    const bool tokens = kind == DataKind::kTokens;
    for (const ObjectInfo& companion : companions) {
      if (IsCompanion(kind, companion.key)) continue;
      const std::string_view below = std::string_view(companion.key).substr(data_.Key("").size());
      return IsContainer(below) ? RefuseContainer(companion.key)
                                : Mixed(data_, companion.key, object.key, tokens, shard_names_);
    }
    kind_ = kind;
    first_sample_ = object.key;
    for (const ObjectInfo& companion : companions)
      PassOverCompanion(companion.key.substr(data_.Key("").size()), companion);
    for (const ObjectInfo& document : std::exchange(documents_, {}))
      skipped_.Add(document.key.substr(data_.Key("").size()), kDocument);
  } else if (kind != kind_) {
    return Mixed(data_, first_sample_, object.key, kind == DataKind::kTokens || kind_ == DataKind::kTokens,
                 shard_names_);
  }
  if (kind == DataKind::kRawObjects && raw_sample_.empty()) raw_sample_ = object.key;
  if (kind == DataKind::kRawObjects && IsImageField(SplitObjectName(key)->field)) {
    if (images_++ == 0) first_image_ = object.key;
    if (image_names_.size() < kMostNames) image_names_.insert(PatternOfName(key));
  }
  if (kind != DataKind::kRawObjects && kind != DataKind::kTokens) {
    ++shards_;
    if (shard_names_.size() < kMostNames) shard_names_.insert(PatternOfName(key));
  }
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
      RETURN_IF_ERROR(CheckCompanions());
      RETURN_IF_ERROR(CheckContainers());
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
