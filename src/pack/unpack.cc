#include "pack/unpack.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/decompressor.h"
#include "base/size.h"
#include "base/waiting_budget.h"
#include "dataset/progress.h"
#include "pack/parquet.h"
#include "shard/tar_format.h"
#include "store/blocking.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

constexpr uint64_t kThreadBytes = 64 << 20;
constexpr uint64_t kLeastThreadBytes = 1 << 20;
constexpr uint64_t kMaxWindowBytes = 128 << 20;  // of a stream of zstd
constexpr uint64_t kAllBytes = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxReasonBytes = 1 << 16;
// A stream of a few megabytes can decompress to terabytes. Those of real data do not grow so much.
constexpr uint64_t kMaxGrowth = 1000;
constexpr uint64_t kAnyGrowth = 64 << 20;   // bytes that any stream may decompress to
constexpr uint64_t kSpaceEvery = 64 << 20;  // decompressed bytes from one look at the free space to the next
constexpr uint64_t kFreeShare = 20;         // one twentieth of the file system stays free

// Returns the shards of a Parquet file.
ParquetTarget ParquetTargetOf(const Location& scratch, const std::string& key) {
  const std::filesystem::path shards = scratch.store->Uri(scratch.Key(key));  // a path: the store is a folder
  return {.folder = shards.parent_path(),
          .name = shards.filename(),
          .key = key.substr(0, key.size() - kParquetSuffix.size())};
}

// The name of the file that says why a shard is not whole.
std::string DamageOf(const std::string& plain) {
  const size_t name = plain.rfind('/') + 1;
  return fmt::format("{}.{}.damage", plain.substr(0, name), plain.substr(name));
}

// ResourceExhausted if less of the folder's file system is free than others need.
absl::Status CheckFreeSpace(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return absl::OkStatus();  // writing says what is wrong
  if (disk.f_bavail >= disk.f_blocks / kFreeShare) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{}: less than {} % of the disk would be free; name a folder with more room by --scratch", folder,
                  100 / kFreeShare));
}

class Unpacker {
 public:
  Unpacker(const Location& data, const CompressedShards& shards, const Location& scratch, const UnpackOptions& options)
      : data_(data),
        shards_(shards),
        scratch_(scratch),
        skip_bad_(options.skip_bad),
        progress_(options.progress),
        on_stop_(options.stop, [this] { stop_.request_stop(); }) {}

  absl::StatusOr<std::vector<UnpackDamage>> Run(MemoryBudget& budget) {
    uint64_t count = std::clamp<uint64_t>(static_cast<uint64_t>(UsableCpus()), 1, shards_.objects.size());
    count = std::clamp<uint64_t>(budget.limit() / kLeastThreadBytes, 1, count);
    const uint64_t share = std::min(kThreadBytes, budget.limit() / count);
    const Reservation reserved = budget.TryReserve(share * count);
    if (!reserved) {
      return absl::ResourceExhaustedError(
          fmt::format("unpacking needs {} of memory, and {} of {} are in use: raise --memory",
                      FormatSize(share * count), FormatSize(budget.used()), FormatSize(budget.limit())));
    }
    // These share the rest. A stream that asks for more gets it while no other has any.
    const uint64_t rest = std::min(count * kMaxWindowBytes, budget.limit() - share * count);
    const Reservation reserved_windows = budget.TryReserve(rest);
    windows_.emplace(reserved_windows ? rest : 0);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < count; ++i) threads.emplace_back([this, share] { UnpackSome(share); });
    for (std::thread& thread : threads) thread.join();
    RETURN_IF_ERROR(status_);
    std::vector<UnpackDamage> damaged;
    for (auto& [number, shard] : damaged_) damaged.push_back(std::move(shard));
    return damaged;
  }

 private:
  void UnpackSome(uint64_t share) {
    MemoryBudget memory(share);
    while (true) {
      const size_t next = next_.fetch_add(1);
      if (next >= shards_.objects.size()) return;
      const absl::Status status = UnpackOne(next, memory);
      if (status.ok()) continue;
      std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = status;
      stop_.request_stop();
      return;
    }
  }

  absl::Status UnpackOne(size_t number, MemoryBudget& memory) {
    const ObjectInfo& listed = shards_.objects[number];
    const std::string key = listed.key.substr(data_.Key("").size());
    const std::string plain = PlainName(key).empty() ? key : PlainName(key);
    ASSIGN_OR_RETURN(const bool done, IsDone(number, key, plain));
    if (done) {
      Advance(listed.size);
      return absl::OkStatus();
    }
    // An index from an earlier run would not be that of a shard that is made again.
    RETURN_IF_ERROR(DeleteBlocking(*scratch_.store, scratch_.Key(kIndexName)));
    if (IsParquet(key)) return UnpackParquet(listed, key, memory);
    if (CompressionOf(key)) return Decompress(number, key, plain, memory);
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, Write(scratch_.Key(plain)));
    RETURN_IF_ERROR(Read(listed, memory, [&out](ByteSpan bytes) { return out->Append(bytes); }));
    return out->Commit().status();
  }

  // Returns true if an earlier run has unpacked it. If damage is an error in this run, the kept part of a damaged shard
  // does not count.
  absl::StatusOr<bool> IsDone(size_t number, const std::string& key, const std::string& plain) {
    if (IsParquet(key)) return HasParquetShards(TargetOf(key));
    const auto there = HeadBlocking(*scratch_.store, scratch_.Key(plain), stop_.get_token());
    if (absl::IsNotFound(there.status())) return false;
    RETURN_IF_ERROR(there.status());
    const absl::StatusOr<std::string> damage = ReadAll(*scratch_.store, scratch_.Key(DamageOf(plain)), kMaxReasonBytes);
    if (absl::IsNotFound(damage.status())) return true;
    RETURN_IF_ERROR(damage.status());
    if (skip_bad_) {
      Report(number, *damage);
      return true;
    }
    RETURN_IF_ERROR(DeleteBlocking(*scratch_.store, scratch_.Key(plain)));
    RETURN_IF_ERROR(DeleteBlocking(*scratch_.store, scratch_.Key(DamageOf(plain))));
    return false;
  }

  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(std::string key) {
    PutOptions put;
    put.stop = stop_.get_token();
    return scratch_.store->Write(std::move(key), put);
  }

  absl::Status Decompress(size_t number, const std::string& key, const std::string& plain, MemoryBudget& memory) {
    ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, Write(scratch_.Key(plain)));
    ASSIGN_OR_RETURN(const Stream found, DecompressTo(*out, shards_.objects[number], key, kAllBytes, memory));
    if (found.damage.ok()) return out->Commit().status();
    const std::string uri = data_.store->Uri(shards_.objects[number].key);
    if (!skip_bad_ || !absl::IsDataLoss(found.damage)) {
      const char* const remedy =
          absl::IsDataLoss(found.damage) ? "; replace it, or keep what is good by --skip-bad" : "";
      return absl::Status(found.damage.code(), fmt::format("{}: {}{}", uri, ToStd(found.damage.message()), remedy));
    }
    if (found.keep < found.written) {
      out = nullptr;
      if (found.keep > 0) {
        ASSIGN_OR_RETURN(out, Write(scratch_.Key(plain)));
        RETURN_IF_ERROR(DecompressTo(*out, shards_.objects[number], key, found.keep, memory).status());
      }
    }
    const std::string why = fmt::format("{}; {} of it {} kept", ToStd(found.damage.message()),
                                        found.keep == 0 ? "nothing" : fmt::format("{} decompressed bytes", found.keep),
                                        found.keep == 0 ? "was" : "were");
    Report(number, why);
    if (found.keep == 0) return absl::OkStatus();
    PutOptions put;
    put.stop = stop_.get_token();
    RETURN_IF_ERROR(PutBlocking(*scratch_.store, scratch_.Key(DamageOf(plain)), AsBytes(why), put).status());
    return out->Commit().status();
  }

  // Represents the result of a compressed stream.
  struct Stream {
    absl::Status damage;   // of the stream; the store and the disk are well
    uint64_t written = 0;  // bytes
    uint64_t keep = 0;     // of these, those that are right whatever is damaged
  };

  // Ends after `most` bytes, as if they were all.
  absl::StatusOr<Stream> DecompressTo(ObjectWriter& out, const ObjectInfo& listed, const std::string& key,
                                      uint64_t most, MemoryBudget& memory) {
    const std::unique_ptr<Decompressor> decompressor = Decompressor::Make(*CompressionOf(key), &*windows_);
    Stream result;
    absl::Status written;
    bool too_large = false;
    uint64_t looked_at = 0;
    const uint64_t limit = std::max(kAnyGrowth, listed.size * kMaxGrowth);
    const auto write = [&](ByteSpan plain_bytes) {
      const ByteSpan some = plain_bytes.first(std::min<uint64_t>(plain_bytes.size(), most - result.written));
      too_large = too_large || some.size() > limit - result.written;
      if (too_large) return absl::CancelledError("too large");
      if (result.written >= looked_at) {
        written = CheckFreeSpace(scratch_.store->Uri(""));
        if (!written.ok()) return written;
        looked_at = result.written + kSpaceEvery;
      }
      written = out.Append(some);
      result.written += some.size();
      return written.ok() && result.written == most ? absl::CancelledError("enough") : written;
    };
    std::string head;
    const absl::Status read = Read(listed, memory, [&](ByteSpan bytes) {
      head += AsText(bytes).substr(0, kTarBlock - std::min<size_t>(head.size(), kTarBlock));
      result.damage = decompressor->Feed(bytes, write);
      return written.ok() ? result.damage : written;
    });
    if (written.ok() && result.written == most) return result;
    if (!too_large && (result.damage.ok() || !written.ok())) RETURN_IF_ERROR(read);
    if (result.damage.ok()) result.damage = decompressor->Finish(write);
    if (too_large) {
      result.damage = absl::DataLossError(
          fmt::format("decompresses to more than {} times its size, as a file made to fill the disk would; decompress "
                      "it by hand if it is meant to",
                      kMaxGrowth));
      return result;
    }
    RETURN_IF_ERROR(written);
    const bool plain = head.size() == kTarBlock && TarField(head, kTarMagic).starts_with("ustar");
    if (absl::IsDataLoss(result.damage) && plain) {
      result.damage = absl::InvalidArgumentError("a plain tar archive under the name of a compressed one; rename it");
      return result;
    }
    result.keep = decompressor->sound_bytes();
    return result;
  }

  void Report(size_t number, std::string why) {
    const std::string& object = shards_.objects[number].key;
    const std::string key = object.substr(data_.Key("").size());
    std::lock_guard lock(mutex_);
    damaged_[number] = {.uri = data_.store->Uri(object), .key = key, .plain = PlainName(key), .why = std::move(why)};
  }

  ParquetTarget TargetOf(const std::string& key) const { return ParquetTargetOf(scratch_, key); }

  // Arrow reads a file here and there, so it is copied first.
  absl::Status UnpackParquet(const ObjectInfo& listed, const std::string& key, MemoryBudget& memory) {
    const std::string copy = scratch_.Key(ParquetCopyOf(key));  // hidden: no sample
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, Write(copy));
    RETURN_IF_ERROR(Read(listed, memory, [&out](ByteSpan bytes) { return out->Append(bytes); }));
    RETURN_IF_ERROR(out->Commit().status());
    const absl::Status made = ParquetToMds(scratch_.store->Uri(copy), TargetOf(key), stop_.get_token());
    if (!made.ok()) return Annotate(made, data_.store->Uri(listed.key));
    return DeleteBlocking(*scratch_.store, copy);
  }

  // Reads all of an object, in order, by pieces that are read ahead.
  absl::Status Read(const ObjectInfo& listed, MemoryBudget& memory, absl::FunctionRef<absl::Status(ByteSpan)> sink) {
    return ReadPieces(*data_.store, memory, ObjectReader::All(listed), stop_.get_token(),
                      [&](const ObjectReader::Piece& piece) -> absl::Status {
                        RETURN_IF_ERROR(sink(piece.bytes));
                        Advance(piece.bytes.size());
                        return absl::OkStatus();
                      });
  }

  void Advance(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_.Update(std::min(done_, shards_.bytes), shards_.bytes);  // what is damaged is read twice
  }

  const Location& data_;
  const CompressedShards& shards_;
  const Location& scratch_;
  const bool skip_bad_;
  std::atomic<size_t> next_{0};

  std::mutex mutex_;  // guards what follows
  ProgressMeter progress_;
  uint64_t done_ = 0;
  absl::Status status_;
  std::map<size_t, UnpackDamage> damaged_;  // by their numbers

  std::optional<WaitingBudget> windows_;
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace

absl::StatusOr<std::vector<UnpackDamage>> Unpack(Runtime& runtime, const Location& data, const CompressedShards& shards,
                                                 const Location& scratch, const UnpackOptions& options) {
  return Unpacker(data, shards, scratch, options).Run(runtime.memory());
}

ColumnClasses ClassesOfUnpacked(const Location& data, const CompressedShards& shards, const Location& scratch) {
  ColumnClasses agreed;
  bool first = true;
  for (const ObjectInfo& object : shards.objects) {
    const std::string key = object.key.substr(data.Key("").size());
    if (!IsParquet(key)) continue;
    ColumnClasses here = ClassesOfParquet(ParquetTargetOf(scratch, key));
    if (std::exchange(first, false)) {
      agreed = std::move(here);
      continue;
    }
    std::erase_if(agreed, [&here](const auto& column) {
      const auto found = here.find(column.first);
      return found == here.end() || found->second != column.second;
    });
  }
  return agreed;
}

UnpackedNames::UnpackedNames(const DatasetPlace& data, const CompressedShards& shards, std::string scratch_path)
    : data_uri_(data.uri), folder_(std::move(scratch_path)) {
  for (const ObjectInfo& object : shards.objects) {
    const std::string key = object.key.substr(data.Key("").size());
    const std::string plain = PlainName(key);
    const std::string uri = data.store->Uri(object.key);
    names_.push_back({.plain = plain.empty() ? key : plain, .said = plain.empty() ? uri : uri + " (unpacked)"});
  }
}

// Returns the meaning of the path with whose part below the folder `message` begins, and its length; "" for what is not
// one of the source's.
std::string_view UnpackedNames::ObjectAt(std::string_view message, size_t* length) const {
  constexpr std::string_view kNumberOfShard = ".00000.mds";
  const Name* longest = nullptr;
  for (const Name& name : names_) {
    if (message.starts_with(name.plain) && (longest == nullptr || name.plain.size() > longest->plain.size()))
      longest = &name;
  }
  if (longest == nullptr) return {};
  *length = longest->plain.size();
  if (IsParquet(longest->plain)) *length = std::min(message.size(), *length + kNumberOfShard.size());
  return longest->said;
}

std::string UnpackedNames::Translate(std::string_view message) const {
  constexpr std::string_view kEnds = " '`\",;:)";
  std::string text;
  while (true) {
    const size_t at = message.find(folder_);
    text += message.substr(0, at);
    if (at == std::string_view::npos) return text;
    message.remove_prefix(at + folder_.size());
    const std::string_view below = message.substr(message.starts_with('/') ? 1 : 0);
    size_t length = 0;
    std::string_view said = ObjectAt(below, &length);
    if (said.empty() && (below.empty() || kEnds.find(below[0]) != std::string_view::npos)) said = data_uri_;
    if (said.empty()) {
      text += folder_;
      continue;
    }
    text += said;
    message = below.substr(length);
  }
}

}  // namespace millrace
