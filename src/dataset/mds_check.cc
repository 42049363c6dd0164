#include "dataset/mds_check.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/log.h"
#include "base/named_hash.h"
#include "shard/mds_format.h"
#include "shard/mds_scanner.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;

std::string_view FolderOf(std::string_view key) {
  return key.substr(0, key.rfind('/') + 1);
}

absl::StatusOr<std::vector<MdsShardEntry>> ReadIndex(const Location& data, const std::string& key,
                                                     const std::stop_token& stop = {}) {
  ASSIGN_OR_RETURN(const ObjectInfo info, HeadBlocking(*data.store, data.Key(key), stop));
  if (info.size > kMaxIndexBytes) {
    return absl::InvalidArgumentError(fmt::format("{}: an index.json of {} bytes (at most {} are read)",
                                                  data.store->Uri(info.key), info.size, kMaxIndexBytes));
  }
  Buffer buffer(info.size);
  GetOptions options;
  options.range = {0, info.size};
  options.if_match = info.etag;
  options.whole = true;
  options.stop = stop;
  if (info.size > 0) {
    RETURN_IF_ERROR(GetBlocking(*data.store, info.key, buffer.span(), std::move(options)).status());
  }
  absl::StatusOr<std::vector<MdsShardEntry>> entries = ParseMdsIndex(AsText(std::as_const(buffer).span()));
  if (!entries.ok()) return Annotate(entries.status(), data.store->Uri(info.key));
  return entries;
}

// Represents a scanner that also hashes the bytes that it is fed.
class HashedMdsScanner final : public ShardScanner {
 public:
  struct Hash {
    std::string name;
    std::string expected;
    std::unique_ptr<NamedHash> stream;
  };
  explicit HashedMdsScanner(std::vector<Hash> hashes) : hashes_(std::move(hashes)) {}

  absl::Status Feed(ByteSpan chunk, ShardSink sink) override {
    for (Hash& hash : hashes_) hash.stream->Update(chunk);
    return scanner_.Feed(chunk, sink);
  }

  absl::Status Finish(ShardSink sink) override {
    RETURN_IF_ERROR(scanner_.Finish(sink));
    for (Hash& hash : hashes_) {
      const std::string found = hash.stream->Finish();
      if (found == hash.expected) continue;
      all_doubtful_ = true;
      return absl::DataLossError(
          fmt::format("its {} is {}, and the index.json beside it says {}: the shard is damaged, "
                      "or not the one that was listed",
                      hash.name, found, hash.expected.substr(0, kMaxShownDigits)));
    }
    return absl::OkStatus();
  }

  uint64_t held_bytes() const override { return scanner_.held_bytes(); }
  bool all_doubtful() const override { return all_doubtful_; }

 private:
  static constexpr size_t kMaxShownDigits = 128;
  MdsScanner scanner_;
  std::vector<Hash> hashes_;
  bool all_doubtful_ = false;
};

std::string LowerHex(std::string_view digits) {
  std::string lower(digits);
  for (char& c : lower) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace

absl::Status MdsIndexes::ReadFolder(std::string_view folder) {
  if (folder_ == folder) return read_;
  folder_ = std::string(folder);
  entries_.clear();
  absl::StatusOr<std::vector<MdsShardEntry>> entries = ReadIndex(data_, *folder_ + std::string(kMdsIndexName), stop_);
  read_ = entries.status();
  RETURN_IF_ERROR(read_);
  for (MdsShardEntry& entry : *entries) {
    std::string key = *folder_ + entry.name;
    entries_.insert_or_assign(std::move(key), std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardScanner>> MdsIndexes::ScannerFor(const std::string& key, bool* hashed) {
  // Nothing is known from an index.json that this reader may not see, or about a single shard without one.
  const absl::Status read = ReadFolder(FolderOf(key));
  if (!absl::IsNotFound(read) && !absl::IsPermissionDenied(read)) RETURN_IF_ERROR(read);
  std::vector<HashedMdsScanner::Hash> hashes;
  if (const auto entry = entries_.find(key); entry != entries_.end()) {
    for (const auto& [name, digits] : entry->second.hashes) {
      std::unique_ptr<NamedHash> stream = NamedHash::Make(name);
      if (stream != nullptr) {
        hashes.push_back({.name = name, .expected = LowerHex(digits), .stream = std::move(stream)});
      } else if (!std::exchange(warned_, true)) {
        Log(LogLevel::kWarning, "dataset",
            fmt::format("{}: the hash '{}' in index.json is not known here, and is not verified",
                        data_.store->Uri(data_.Key(key)), name.substr(0, 40)));
      }
    }
  }
  *hashed = !hashes.empty();
  if (!*hashed) return std::make_unique<MdsScanner>();
  return std::make_unique<HashedMdsScanner>(std::move(hashes));
}

const MdsShardEntry* MdsIndexes::Find(const std::string& key) {
  if (!ReadFolder(FolderOf(key)).ok()) return nullptr;
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

absl::Status MdsIndexes::Check(const std::vector<std::string>& indexes,
                               const std::map<std::string, std::optional<uint64_t>>& shards) {
  for (const std::string& index : indexes) {
    const std::string_view folder = FolderOf(index);
    const std::string uri = data_.store->Uri(data_.Key(index));
    RETURN_IF_ERROR(ReadFolder(folder));
    for (const auto& [key, entry] : entries_) {
      const auto found = shards.find(key);
      if (found == shards.end()) {
        return absl::DataLossError(fmt::format("{}: lists the shard '{}', which is not there", uri, entry.name));
      }
      if (found->second && *found->second != entry.bytes) {
        return absl::DataLossError(fmt::format("{}: says that the shard '{}' has {} bytes; it has {}", uri, entry.name,
                                               entry.bytes, *found->second));
      }
    }
    for (auto shard = shards.lower_bound(std::string(folder)); shard != shards.end(); ++shard) {
      if (!shard->first.starts_with(folder)) break;
      if (FolderOf(shard->first) != folder || entries_.contains(shard->first)) continue;
      return absl::InvalidArgumentError(fmt::format("{}: is not listed in the index.json beside it; remove one of them",
                                                    data_.store->Uri(data_.Key(shard->first))));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
