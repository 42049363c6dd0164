#include "pack/compressed_shards.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "shard/data_kind.h"
#include "shard/mds_format.h"
#include "shard/sample_name.h"
#include "shard/side_files.h"
#include "store/file_system.h"

namespace millrace {

namespace {

// These are the numbers of SampleObjects.
constexpr uint64_t kMostOthers = 4;       // beside each shard
constexpr uint64_t kMostListed = 16'000;  // others, until shards come

// The Parquet file of which a shard of that name would be made; else "".
std::string ParquetOfShard(std::string_view plain) {
  if (!plain.ends_with(".mds")) return "";
  plain.remove_suffix(4);
  const size_t dot = plain.rfind('.');
  return dot != std::string_view::npos && IsParquet(plain.substr(0, dot)) ? std::string(plain.substr(0, dot)) : "";
}

// Gathers what belongs to a compressed data set, object by object in the order of keys.
class Finder {
 public:
  explicit Finder(const Location& data) : data_(data) {}

  /// False: the data set is no compressed one, whatever else it holds.
  bool Take(const ObjectInfo& object) {
    const std::string key = object.key.substr(data_.Key("").size());
    if (const std::optional<std::string_view> why = WhyPassedOver(object, key)) {
      if (!why->empty()) PassOver(key, *why);
      return true;
    }
    const std::string plain = PlainName(key);
    if (plain.empty()) return TakeOther(object, key);
    if (last_key_ == plain) {
      PassOver(key, "a compressed copy of the shard beside it");
      return true;
    }
    if (!IsParquet(key) && !CompressionOf(key)) {
      refusal_.Update(absl::InvalidArgumentError(
          fmt::format("{}: only gzip and zstd can be decompressed here; decompress it, or compress it by one of these",
                      Uri(object))));
    }
    (IsParquet(key) ? parquet_ : compressed_) = true;
    tar_ = tar_ || ShardKind(plain) == DataKind::kTar;
    Add(object, key, plain);
    return true;
  }

  absl::StatusOr<std::optional<CompressedShards>> Finish() {
    // Parquet files beside tar shards only describe these, as img2dataset has it; and an index.json is not that of MDS.
    if (tar_) {
      const auto describes = [](const ObjectInfo& object) {
        return IsParquet(object.key) || object.key.ends_with(kMdsIndexName);
      };
      for (const ObjectInfo& object : found_.objects) {
        if (describes(object)) PassOver(object.key.substr(data_.Key("").size()), SkippedObjects::kCompanion);
      }
      std::erase_if(found_.objects, describes);
      parquet_ = false;
    }
    if (!compressed_ && !parquet_) return std::nullopt;
    // SampleObjects says whether it is a data set of images, or of what else lies there, or of neither.
    if (!compressed_ && images_ > 0) return std::nullopt;
    if (others_ > kMostOthers * (found_.objects.size() + 1)) return std::nullopt;
    RETURN_IF_ERROR(refusal_);
    Xxh3Stream hash;
    for (const ObjectInfo& object : found_.objects) {
      const std::string_view key = std::string_view(object.key).substr(data_.Key("").size());
      for (const std::string_view text : {key, std::string_view(object.etag)}) {
        hash.UpdateLe64(text.size());
        hash.Update(AsBytes(text));
      }
      hash.UpdateLe64(object.size);
      found_.bytes += object.size;
    }
    found_.id = hash.Digest().Hex();
    return std::move(found_);
  }

 private:
  void PassOver(std::string_view key, std::string_view why) { found_.skipped.Add(key, why); }

  bool TakeOther(const ObjectInfo& object, const std::string& key) {
    const std::optional<DataKind> kind = ShardKind(key);
    tar_ = tar_ || kind == DataKind::kTar;
    const std::optional<SampleName> name = SplitObjectName(key);
    if (kind || key.ends_with(kMdsIndexName)) {  // index.json says which shards there are
      Add(object, key, key);
    } else if (IsDocument(key)) {
      PassOver(key, kDocument);
    } else if (!name) {
      PassOver(key, "its name has no extension");
    } else {
      images_ += IsImageField(name->field) ? 1 : 0;
      others_ += MayBeSample(key) ? 1 : 0;
      PassOver(key, SkippedObjects::kCompanion);
    }
    return others_ <= kMostListed + kMostOthers * (found_.objects.size() + 1);
  }

  void Add(const ObjectInfo& object, const std::string& key, const std::string& plain) {
    if (const absl::Status kept = CheckFileKey(Uri(object), IsParquet(key) ? ParquetCopyOf(plain) : plain);
        !kept.ok()) {
      refusal_.Update(absl::InvalidArgumentError(
          fmt::format("{}, and it has to be unpacked in one; rename the object", ToStd(kept.message()))));
    }
    if (!plain_names_.insert(plain).second || plain_names_.contains(ParquetOfShard(plain))) {
      refusal_.Update(absl::InvalidArgumentError(
          fmt::format("{}: is there twice, differently compressed or made; remove one of them", Uri(object))));
    }
    found_.objects.push_back(object);
    last_key_ = key;
  }

  std::string Uri(const ObjectInfo& object) const { return data_.store->Uri(object.key); }

  const Location& data_;
  CompressedShards found_;
  std::set<std::string> plain_names_;
  std::string last_key_;
  absl::Status refusal_;  // what is wrong with the shards, if it is a data set of these

  bool compressed_ = false;
  bool parquet_ = false;
  bool tar_ = false;
  uint64_t images_ = 0;  // that lie beside the shards
  uint64_t others_ = 0;  // all that lies there and may be samples
};

}  // namespace

std::optional<Compression> CompressionOf(std::string_view key) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(key.substr(key.rfind('.') + 1)));
  if (lower == "gz" || lower == "tgz") return Compression::kGzip;
  if (lower == "zst" || lower == "zstd" || lower == "tzst") return Compression::kZstd;
  return std::nullopt;
}

bool IsParquet(std::string_view key) {
  return key.ends_with(kParquetSuffix);
}

std::string PlainName(std::string_view key) {
  if (IsParquet(key)) return std::string(key);
  const std::string plain(CompressedShard(key));
  if (plain.empty()) return plain;
  // ".tgz" and the like say that it is a tar, whatever the rest of the name says; ".gz" and the like do not.
  const std::string end = absl::AsciiStrToLower(ToAbsl(key.substr(plain.size())));
  return end.starts_with(".t") && ShardKind(plain) != DataKind::kTar ? plain + ".tar" : plain;
}

std::string ParquetCopyOf(const std::string& key) {
  const size_t name = key.rfind('/') + 1;  // 0 without a slash
  return fmt::format("{}.{}.done.copy", key.substr(0, name), key.substr(name));
}

absl::StatusOr<std::optional<CompressedShards>> FindCompressedShards(const DatasetPlace& data,
                                                                     const std::stop_token& stop) {
  Finder finder(data);
  PlaceLister lister(data, stop);
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, lister.Next());
    if (objects.empty()) break;
    for (const ObjectInfo& object : objects) {
      if (!finder.Take(object)) return std::nullopt;
    }
  }
  ASSIGN_OR_RETURN(std::optional<CompressedShards> found, finder.Finish());
  if (found) RETURN_IF_ERROR(AddOtherFiles(data, stop, &found->skipped));
  return found;
}

}  // namespace millrace
