#include "pack/unpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/crypto.h"
#include "base/decompressor.h"
#include "base/size.h"
#include "dataset/progress.h"
#include "dataset/read_ahead.h"
#include "dataset/sample_objects.h"
#include "pack/parquet.h"
#include "shard/data_kind.h"
#include "shard/mds_format.h"
#include "shard/sample_name.h"
#include "store/blocking.h"
#include "store/lister.h"
#include "store/whole_check.h"

namespace millrace {

namespace {

constexpr uint64_t kThreadBytes = 64 << 20;
constexpr uint64_t kLeastThreadBytes = 1 << 20;

std::optional<Compression> CompressionOf(std::string_view key) {
  if (key.ends_with(".gz") || key.ends_with(".tgz")) return Compression::kGzip;
  if (key.ends_with(".zst") || key.ends_with(".zstd")) return Compression::kZstd;
  return std::nullopt;
}

bool IsParquet(std::string_view key) {
  return key.ends_with(kParquetSuffix);
}

// What is called so when it is unpacked; "" for what is plain already.
std::string PlainName(std::string_view key) {
  if (IsParquet(key)) return std::string(key);
  const std::string plain(CompressedShard(key));
  return key.ends_with(".tgz") ? plain + ".tar" : plain;
}

// Where it is said, in the scratch folder, that a Parquet file has been made into shards, all of them.
std::string MarkOf(const std::string& key) {
  const size_t name = key.rfind('/') + 1;  // 0 without a slash
  return fmt::format("{}.{}.done", key.substr(0, name), key.substr(name));
}

// Gathers what belongs to a compressed data set, object by object in the order of keys.
class Finder {
 public:
  explicit Finder(const Location& data) : data_(data) {}

  /// False: the data set is no compressed one.
  absl::StatusOr<bool> Take(const ObjectInfo& object) {
    const std::string key = object.key.substr(data_.Key("").size());
    if (key.empty() || key.ends_with('/') || IsHiddenKey(key)) return true;
    const std::string plain = PlainName(key);
    if (plain.empty()) return TakeOther(object, key);
    if (last_key_ == plain) return true;  // beside the shard itself it says nothing more
    if (!IsParquet(key) && !CompressionOf(key)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: only gzip and zstd can be decompressed here; decompress it, or compress it by one of these",
                      Uri(object)));
    }
    any_ = true;
    return Add(object, key, plain);
  }

  std::optional<PackedShards> Finish() {
    if (!any_) return std::nullopt;
    found_.id = hash_.Digest().Hex();
    return std::move(found_);
  }

 private:
  absl::StatusOr<bool> TakeOther(const ObjectInfo& object, const std::string& key) {
    const bool is_shard = ShardKind(key).has_value();
    if (!is_shard && IsCompanion(key)) {
      return key.ends_with(kMdsIndexName) ? Add(object, key, key) : true;  // that says which shards there are
    }
    if (!is_shard && !SplitSampleName(key)) return true;
    if (!any_) return false;
    if (!is_shard) {
      return absl::InvalidArgumentError(
          fmt::format("{}: lies beside compressed shards ('{}'); give the URI of a folder with only one of them",
                      Uri(object), found_.objects.back().key));
    }
    return Add(object, key, key);
  }

  absl::StatusOr<bool> Add(const ObjectInfo& object, const std::string& key, const std::string& plain) {
    if (!plain_names_.insert(plain).second) {
      return absl::InvalidArgumentError(
          fmt::format("{}: is there twice, differently compressed; remove one of them", Uri(object)));
    }
    for (const std::string_view text : {std::string_view(key), std::string_view(object.etag)}) {
      hash_.UpdateLe64(text.size());
      hash_.Update(AsBytes(text));
    }
    hash_.UpdateLe64(object.size);
    found_.bytes += object.size;
    found_.objects.push_back(object);
    last_key_ = key;
    return true;
  }

  std::string Uri(const ObjectInfo& object) const { return data_.store->Uri(object.key); }

  const Location& data_;
  PackedShards found_;
  Xxh3Stream hash_;
  std::set<std::string> plain_names_;
  std::string last_key_;
  bool any_ = false;
};

class Unpacker {
 public:
  Unpacker(const Location& data, const PackedShards& shards, const Location& scratch, const ProgressFn& progress,
           const std::stop_token& stop)
      : data_(data), shards_(shards), scratch_(scratch), progress_(progress), on_stop_(stop, [this] {
          stop_.request_stop();
        }) {}

  absl::Status Run(MemoryBudget& budget) {
    uint64_t count = std::clamp<uint64_t>(static_cast<uint64_t>(UsableCpus()), 1, shards_.objects.size());
    count = std::clamp<uint64_t>(budget.limit() / kLeastThreadBytes, 1, count);
    const uint64_t share = std::min(kThreadBytes, budget.limit() / count);
    const Reservation reserved = budget.TryReserve(share * count);
    if (!reserved) {
      return absl::ResourceExhaustedError(
          fmt::format("unpacking needs {} of memory, and {} of {} are in use: raise --memory",
                      FormatSize(share * count), FormatSize(budget.used()), FormatSize(budget.limit())));
    }
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < count; ++i) threads.emplace_back([this, share] { UnpackSome(share); });
    for (std::thread& thread : threads) thread.join();
    return status_;
  }

 private:
  void UnpackSome(uint64_t share) {
    MemoryBudget memory(share);
    while (true) {
      const size_t next = next_.fetch_add(1);
      if (next >= shards_.objects.size()) return;
      const absl::Status status = UnpackOne(shards_.objects[next], memory);
      if (status.ok()) continue;
      std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = status;
      stop_.request_stop();
      return;
    }
  }

  absl::Status UnpackOne(const ObjectInfo& listed, MemoryBudget& memory) {
    const std::string key = listed.key.substr(data_.Key("").size());
    const std::string plain = PlainName(key);
    const std::string target = scratch_.Key(IsParquet(key) ? MarkOf(key) : plain.empty() ? key : plain);
    const auto there = HeadBlocking(*scratch_.store, target, stop_.get_token());
    if (there.ok()) {
      Advance(listed.size);
      return absl::OkStatus();
    }
    if (!absl::IsNotFound(there.status())) return there.status();
    // An index from an earlier run would not be that of a shard that is made again.
    RETURN_IF_ERROR(DeleteBlocking(*scratch_.store, scratch_.Key(kIndexName)));
    if (IsParquet(key)) return UnpackParquet(listed, key, memory);
    PutOptions put;
    put.stop = stop_.get_token();
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, scratch_.store->Write(target, put));
    const auto write = [&out](ByteSpan bytes) { return out->Append(bytes); };
    if (plain.empty()) {
      RETURN_IF_ERROR(Read(listed, memory, write));
      return out->Commit().status();
    }
    const std::unique_ptr<Decompressor> decompressor = Decompressor::Make(*CompressionOf(key));
    const std::string uri = data_.store->Uri(listed.key);
    RETURN_IF_ERROR(Read(listed, memory, [&](ByteSpan bytes) {
      absl::Status written;
      const absl::Status fed =
          decompressor->Feed(bytes, [&](ByteSpan plain_bytes) { return written = write(plain_bytes); });
      return written.ok() ? Annotate(fed, uri) : written;
    }));
    RETURN_IF_ERROR(Annotate(decompressor->Finish(), uri));
    return out->Commit().status();
  }

  // Arrow reads a file here and there, so it is copied first.
  absl::Status UnpackParquet(const ObjectInfo& listed, const std::string& key, MemoryBudget& memory) {
    PutOptions put;
    put.stop = stop_.get_token();
    const std::string copy = scratch_.Key(MarkOf(key) + ".copy");  // hidden: no sample
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, scratch_.store->Write(copy, put));
    RETURN_IF_ERROR(Read(listed, memory, [&out](ByteSpan bytes) { return out->Append(bytes); }));
    RETURN_IF_ERROR(out->Commit().status());
    const std::filesystem::path shards = scratch_.store->Uri(scratch_.Key(key));  // a path: the store is a folder
    const ParquetTarget target{.folder = shards.parent_path(),
                               .name = shards.filename(),
                               .key = key.substr(0, key.size() - kParquetSuffix.size())};
    absl::Status made = ParquetToMds(scratch_.store->Uri(copy), target, stop_.get_token());
    if (!made.ok()) return Annotate(made, data_.store->Uri(listed.key));
    RETURN_IF_ERROR(DeleteBlocking(*scratch_.store, copy));
    return PutBlocking(*scratch_.store, scratch_.Key(MarkOf(key)), {}, put).status();
  }

  // All of an object, in order, by pieces that are read ahead.
  absl::Status Read(const ObjectInfo& listed, MemoryBudget& memory, absl::FunctionRef<absl::Status(ByteSpan)> sink) {
    ObjectInfo object = listed;
    if (object.size > kPieceBytes) {
      ASSIGN_OR_RETURN(object, LearnBlocking(*data_.store, std::move(object), stop_.get_token()));
    }
    const Pieces pieces(object.size, object.part_bytes, ReadAhead::PieceBytes(memory));
    WholeCheck check(data_.store->Uri(object.key), object, pieces);
    RETURN_IF_ERROR(
        ReadPieces(*data_.store, memory, object, pieces, stop_.get_token(), [&](size_t index, ByteSpan bytes) {
          check.Add(index, bytes);
          RETURN_IF_ERROR(sink(bytes));
          Advance(bytes.size());
          return absl::OkStatus();
        }));
    return pieces.count() > 1 ? check.Finish() : absl::OkStatus();
  }

  void Advance(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_.Update(done_, shards_.bytes);
  }

  const Location& data_;
  const PackedShards& shards_;
  const Location& scratch_;
  std::atomic<size_t> next_{0};

  std::mutex mutex_;  // guards what follows
  ProgressMeter progress_;
  uint64_t done_ = 0;
  absl::Status status_;

  std::stop_source stop_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace

absl::StatusOr<std::optional<PackedShards>> FindPackedShards(const Location& data, const std::stop_token& stop) {
  Finder finder(data);
  Lister lister(*data.store, data.Key(""), stop);
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, lister.Next());
    if (objects.empty()) return finder.Finish();
    for (const ObjectInfo& object : objects) {
      ASSIGN_OR_RETURN(const bool may_be, finder.Take(object));
      if (!may_be) return std::nullopt;
    }
  }
}

absl::Status Unpack(Runtime& runtime, const Location& data, const PackedShards& shards, const Location& scratch,
                    const ProgressFn& progress, const std::stop_token& stop) {
  return Unpacker(data, shards, scratch, progress, stop).Run(runtime.memory());
}

}  // namespace millrace
