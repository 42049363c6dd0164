#include "checkpoint/checkpoints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/process.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

using Attempt = CheckpointAttempt;

// A running training may remove the checkpoint before it is read; this many times in a row is enough.
constexpr int kMaxFinds = 20;

void Warn(const std::string& message) {
  Log(LogLevel::kWarning, "checkpoint", message);
}

// Parses "000000000100/e3-0123456789abcdef/model.safetensors", or the folder alone. Returns false for what is no
// attempt.
bool ParseAttempt(std::string_view below, Attempt* attempt) {
  const size_t slash = below.find('/');
  if (slash == std::string_view::npos || !ParseStepFolder(below.substr(0, slash), &attempt->step)) return false;
  below.remove_prefix(slash + 1);
  attempt->attempt = std::string(below.substr(0, below.find('/')));
  return EpochOfAttempt(attempt->attempt) > 0;
}

// Folders also show attempts that have no files yet, or only temporary ones.
absl::StatusOr<std::vector<Attempt>> AttemptFolders(const std::string& root) {
  namespace fs = std::filesystem;
  std::vector<Attempt> found;
  std::error_code error;
  for (fs::directory_iterator steps(root, error); !error && steps != fs::directory_iterator(); steps.increment(error)) {
    std::error_code unreadable;  // a file, or removed meanwhile
    for (fs::directory_iterator attempts(steps->path(), unreadable);
         !unreadable && attempts != fs::directory_iterator(); attempts.increment(unreadable)) {
      const std::string name = steps->path().filename().string() + '/' + attempts->path().filename().string();
      if (Attempt attempt; ParseAttempt(name, &attempt)) found.push_back(std::move(attempt));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return absl::UnknownError(fmt::format("{}: listing failed: {}", root, error.message()));
  return found;
}

/// Takes ShardBytes or CheckpointShards.
template <typename Shard>
absl::Status CheckNames(const std::vector<Shard>& shards) {
  std::set<std::string_view> names;
  for (const Shard& shard : shards) {
    RETURN_IF_ERROR(CheckShardName(shard.name));
    if (!names.insert(shard.name).second)
      return absl::InvalidArgumentError(fmt::format("two shards have the name '{}'", shard.name));
  }
  return absl::OkStatus();
}

// Writes an object that this process alone writes: if it exists, an earlier request of this call has made it. A store
// may refuse the condition, since it knows none.
absl::Status WriteOnce(ObjectStore& store, const std::string& key, const std::string& text) {
  absl::Status put;
  for (const bool only_if_absent : {true, false}) {
    PutOptions options{.content_type = "application/json", .only_if_absent = only_if_absent};
    put = PutBlocking(store, key, AsBytes(text), std::move(options)).status();
    if (!absl::IsInvalidArgument(put)) break;
  }
  if (!absl::IsAlreadyExists(put)) return put;
  const absl::StatusOr<std::string> there = ReadAll(store, key, kMaxManifestBytes);
  return there.ok() && *there == text ? absl::OkStatus() : put;
}

// Removes the objects of a page, by few requests if the store has one for many. Not all stores of the S3 protocol have
// it.
absl::Status DeletePage(ObjectStore& store, const ListPage& page) {
  constexpr size_t kMaxKeys = 1000;  // of a request
  for (size_t begin = 0; begin < page.objects.size(); begin += kMaxKeys) {
    std::vector<std::string> keys;
    for (size_t i = begin; i < std::min(page.objects.size(), begin + kMaxKeys); ++i)
      keys.push_back(page.objects[i].key);
    Completion<std::vector<absl::Status>> completion;
    store.Delete(keys, completion.Callback());
    const std::vector<absl::Status> deleted = completion.Wait();
    for (size_t i = 0; i < keys.size(); ++i) {
      if (absl::IsUnavailable(deleted[i]) || absl::IsCancelled(deleted[i])) return deleted[i];
      if (!deleted[i].ok()) RETURN_IF_ERROR(DeleteBlocking(store, keys[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Checkpoints::Checkpoints(Location location, MemoryBudget& memory)
    : store_(*location.store),
      memory_(memory),
      folder_(AsFolder(std::move(location.prefix))),
      latest_(store_, folder_) {}

absl::Status Checkpoints::Claim(const std::stop_token& stop) {
  RETURN_IF_ERROR(RunClaim(stop));
  if (!conditional_) {
    Warn(
        fmt::format("{}: this store ignores the conditions of writes (If-Match). Checkpoints are whole as everywhere, "
                    "but a process that was believed dead may still commit; make sure that it is stopped",
                    Uri()));
    return absl::OkStatus();
  }
  const absl::Status swept = RemoveLeft(stop).status();
  if (absl::IsCancelled(swept)) return swept;
  if (!swept.ok()) {
    Warn(fmt::format("{}: what killed writers have left was not removed: {}", Uri(), ToStd(swept.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Checkpoints::ClaimWithoutRemoving(const std::stop_token& stop) {
  RETURN_IF_ERROR(RunClaim(stop));
  return writer_.epoch;
}

absl::Status Checkpoints::RunClaim(const std::stop_token& stop) {
  ClaimProtocol claim(RandomHex(16));
  bool asked = false;
  while (claim.next() != ClaimProtocol::Step::kDone) {
    if (stop.stop_requested()) return absl::CancelledError(fmt::format("{}: interrupted", Uri()));
    if (claim.next() == ClaimProtocol::Step::kReadLatest) {
      claim.OnLatest(latest_.Read(stop));
    } else {
      RETURN_IF_ERROR(WriteClaim(claim, &asked));
    }
  }
  RETURN_IF_ERROR(claim.status());
  writer_ = claim.to_write().writer;
  return absl::OkStatus();
}

// Each LATEST that this process writes says what the store does with conditions: all who read or replace it go by that.
absl::Status Checkpoints::WriteClaim(ClaimProtocol& claim, bool* asked) {
  if (!std::exchange(*asked, true)) {
    ASSIGN_OR_RETURN(conditional_, latest_.FindOutConditions());
  }
  CheckpointCatalog catalog = claim.to_write();
  catalog.conditional_writes = conditional_;
  claim.OnWritten(latest_.Replace(catalog, claim.version()));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Attempt>> Checkpoints::ListAttempts(const std::stop_token& stop) const {
  if (store_.traits().is_folder()) return AttemptFolders(store_.Uri(folder_));
  std::vector<Attempt> found;
  const auto take = [&](const ObjectInfo& object) {
    Attempt attempt;
    const bool named = ParseAttempt(std::string_view(object.key).substr(folder_.size()), &attempt);
    if (named && (found.empty() || !(found.back() == attempt))) found.push_back(std::move(attempt));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachObject(store_, folder_, take, stop));
  return found;
}

// If an older epoch has not committed an attempt, it never will. Nothing here depends on clocks. LATEST is read after
// the listing: an attempt that it does not name then was not committed later, either, if its epoch is older.
absl::StatusOr<std::vector<Attempt>> Checkpoints::FindLeft(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, ListAttempts(stop));
  ASSIGN_OR_RETURN(const LatestRecord latest, latest_.Read(stop));
  std::vector<Attempt> left;
  if (!latest.catalog || !latest.catalog->conditional_writes) return left;
  std::set<std::string> committed;
  for (const CheckpointEntry& entry : latest.catalog->entries) committed.insert(entry.attempt);
  for (const Attempt& attempt : attempts) {
    if (EpochOfAttempt(attempt.attempt) >= latest.catalog->writer.epoch || committed.contains(attempt.attempt))
      continue;
    left.push_back(attempt);
  }
  return left;
}

absl::StatusOr<std::vector<Attempt>> Checkpoints::RemoveLeft(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(std::vector<Attempt> left, FindLeft(stop));
  for (const Attempt& attempt : left) {
    if (stop.stop_requested()) return absl::CancelledError(fmt::format("{}: interrupted", Uri()));
    RETURN_IF_ERROR(RemoveAttempt(attempt));
  }
  RETURN_IF_ERROR(store_.RemoveTemporary(folder_));
  return left;
}

// The manifest is removed first, so that no reader takes a half-removed attempt for a checkpoint.
absl::Status Checkpoints::RemoveAttempt(const Attempt& attempt) const {
  const std::string folder = Folder(attempt.step, attempt.attempt);
  RETURN_IF_ERROR(DeleteBlocking(store_, folder + std::string(kManifestName)));
  const auto remove = [&](const ListPage& page) { return DeletePage(store_, page); };
  const absl::Status removed = ForEachPage(store_, folder, "", remove);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  if (!store_.traits().is_folder()) return absl::OkStatus();
  RETURN_IF_ERROR(store_.RemoveTemporary(folder));
  // They are removed only if they are empty. Another attempt of the step may be beside it.
  if (rmdir(store_.Uri(folder).c_str()) == 0) {
    rmdir(std::filesystem::path(store_.Uri(folder)).parent_path().parent_path().c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointEntry> Checkpoints::WriteManifest(const CheckpointEntry& entry,
                                                           std::vector<CheckpointShard> shards) {
  CheckpointManifest manifest;
  manifest.step = entry.step;
  manifest.attempt = entry.attempt;
  manifest.epoch = writer_.epoch;
  manifest.saved_ms = static_cast<uint64_t>(UnixMilliseconds());
  manifest.host = HostName();
  manifest.shards = std::move(shards);
  const std::string text = manifest.ToJson();
  if (text.size() > kMaxManifestBytes)
    return absl::InvalidArgumentError(fmt::format("{}: the manifest would have {} bytes", Uri(), text.size()));
  RETURN_IF_ERROR(WriteOnce(store_, Folder(entry.step, entry.attempt) + std::string(kManifestName), text));
  CheckpointEntry full = entry;
  full.bytes = manifest.Bytes();
  full.saved_ms = manifest.saved_ms;
  full.manifest_bytes = text.size();
  full.manifest_crc32c = Crc32c(AsBytes(text));
  return full;
}

void Checkpoints::RemoveSuperseded(const std::vector<Attempt>& attempts) const {
  for (const Attempt& old : attempts) {
    const absl::Status removed = RemoveAttempt(old);
    if (!removed.ok()) Warn(fmt::format("an old checkpoint was not removed: {}", ToStd(removed.message())));
  }
}

absl::StatusOr<SaveProtocol> Checkpoints::Begin(uint64_t step, const SaveOptions& options) {
  if (step > kMaxCheckpointStep) {
    return absl::InvalidArgumentError(fmt::format("step is {}; it must be 0 to {}", step, kMaxCheckpointStep));
  }
  if (writer_.epoch == 0) RETURN_IF_ERROR(Claim(options.stop));
  SaveProtocol::Job job;
  job.writer = writer_;
  job.entry.step = step;
  job.entry.attempt = NewAttempt(writer_.epoch);
  job.retention = options.retention;
  SaveProtocol save(std::move(job));
  save.OnLatest(latest_.Read(options.stop));
  if (save.next() == SaveProtocol::Step::kUpload) return save;
  return Annotate(save.status(), fmt::format("{}: saving step {}", Uri(), step));
}

absl::StatusOr<std::vector<CheckpointShard>> Checkpoints::Upload(uint64_t step, const std::string& attempt,
                                                                 const std::vector<ShardBytes>& shards,
                                                                 const std::stop_token& stop) const {
  RETURN_IF_ERROR(CheckNames(shards));
  return WriteShards(store_, Folder(step, attempt), shards, staging_, stop);
}

absl::StatusOr<CheckpointEntry> Checkpoints::Finish(SaveProtocol save,
                                                    absl::StatusOr<std::vector<CheckpointShard>> uploaded,
                                                    const std::stop_token& stop) {
  const uint64_t step = save.entry().step;
  if (uploaded.ok()) {
    if (absl::Status named = CheckNames(*uploaded); !named.ok()) uploaded = std::move(named);
  }
  save.OnUploaded(uploaded.status());
  while (save.next() != SaveProtocol::Step::kDone) {
    switch (save.next()) {
      case SaveProtocol::Step::kReadLatest:
        save.OnLatest(latest_.Read(stop));
        break;
      case SaveProtocol::Step::kWriteManifest:
        save.OnManifest(WriteManifest(save.entry(), *std::move(uploaded)));
        break;
      case SaveProtocol::Step::kWriteLatest:
        save.OnWritten(latest_.Replace(save.to_write(), save.version()));
        break;
      case SaveProtocol::Step::kRemove:
        RemoveSuperseded(save.to_remove());
        save.OnRemoved();
        break;
      case SaveProtocol::Step::kUpload:  // was done before
      case SaveProtocol::Step::kDone:
        break;
    }
  }
  if (!save.status().ok()) return Annotate(save.status(), fmt::format("{}: saving step {}", Uri(), step));
  return save.entry();
}

absl::StatusOr<CheckpointEntry> Checkpoints::Save(uint64_t step, const std::vector<ShardBytes>& shards,
                                                  const SaveOptions& options) {
  RETURN_IF_ERROR(CheckNames(shards));
  ASSIGN_OR_RETURN(SaveProtocol save, Begin(step, options));
  absl::StatusOr<std::vector<CheckpointShard>> written = Upload(step, save.entry().attempt, shards, options.stop);
  return Finish(std::move(save), std::move(written), options.stop);
}

absl::StatusOr<CheckpointEntry> Checkpoints::Copy(const Checkpoints& from, const CheckpointEntry& entry,
                                                  const SaveOptions& options) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest, from.ReadManifest(entry));
  ASSIGN_OR_RETURN(SaveProtocol save, Begin(entry.step, options));
  absl::StatusOr<std::vector<CheckpointShard>> written =
      CopyShards(from.store_, from.Folder(entry.step, entry.attempt), manifest.shards, store_,
                 Folder(entry.step, save.entry().attempt), staging_, memory_, options.stop);
  return Finish(std::move(save), std::move(written), options.stop);
}

absl::StatusOr<std::vector<Attempt>> Checkpoints::Retain(const Retention& retention, const std::stop_token& stop) {
  RetainProtocol retain(retention);
  while (retain.next() != RetainProtocol::Step::kDone) {
    if (stop.stop_requested()) return absl::CancelledError(fmt::format("{}: interrupted", Uri()));
    switch (retain.next()) {
      case RetainProtocol::Step::kReadLatest:
        retain.OnLatest(latest_.Read(stop));
        break;
      case RetainProtocol::Step::kWriteLatest:
        retain.OnWritten(latest_.Replace(retain.to_write(), retain.version()));
        break;
      case RetainProtocol::Step::kRemove:
        RemoveSuperseded(retain.to_remove());
        retain.OnRemoved();
        break;
      case RetainProtocol::Step::kDone:
        break;
    }
  }
  if (!retain.status().ok()) return Annotate(retain.status(), Uri());
  return retain.to_remove();
}

absl::StatusOr<std::optional<CheckpointCatalog>> Checkpoints::ReadCatalog(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(LatestRecord latest, latest_.Read(stop));
  return std::move(latest.catalog);
}

absl::StatusOr<CheckpointEntry> Checkpoints::Find(std::optional<uint64_t> step, const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(const std::optional<CheckpointCatalog> catalog, ReadCatalog(stop));
  const CheckpointEntry* const entry = !catalog ? nullptr : step ? catalog->Find(*step) : catalog->Newest();
  if (entry != nullptr) return *entry;
  if (!catalog || catalog->entries.empty())
    return absl::NotFoundError(fmt::format("{}: there is no checkpoint", Uri()));
  std::string steps;
  const size_t first = catalog->entries.size() > 5 ? catalog->entries.size() - 5 : 0;
  for (size_t i = first; i < catalog->entries.size(); ++i) {
    steps += fmt::format("{}{}", steps.empty() ? "" : ", ", catalog->entries[i].step);
  }
  return absl::NotFoundError(
      fmt::format("{}: there is no checkpoint of step {}; the newest are those of {}", Uri(), *step, steps));
}

absl::StatusOr<bool> Checkpoints::IsCommitted(const CheckpointEntry& entry, const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(const std::optional<CheckpointCatalog> catalog, ReadCatalog(stop));
  const CheckpointEntry* const there = catalog ? catalog->Find(entry.step) : nullptr;
  return there != nullptr && there->attempt == entry.attempt;
}

absl::StatusOr<CheckpointManifest> Checkpoints::FindManifest(std::optional<uint64_t> step,
                                                             const std::stop_token& stop) const {
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(const CheckpointEntry entry, Find(step, stop));
    absl::StatusOr<CheckpointManifest> manifest = ReadManifest(entry);
    if (!absl::IsNotFound(manifest.status()) || tries == kMaxFinds) return manifest;
    ASSIGN_OR_RETURN(const bool committed, IsCommitted(entry, stop));
    if (committed) return manifest;
  }
}

absl::StatusOr<CheckpointManifest> Checkpoints::ReadManifest(const CheckpointEntry& entry) const {
  const std::string key = Folder(entry.step, entry.attempt) + std::string(kManifestName);
  const std::string uri = store_.Uri(key);
  ASSIGN_OR_RETURN(const std::string text, ReadAll(store_, key, kMaxManifestBytes));
  if (text.size() != entry.manifest_bytes || Crc32c(AsBytes(text)) != entry.manifest_crc32c)
    return absl::DataLossError(fmt::format("{}: is not the manifest that LATEST names; load another step", uri));
  absl::StatusOr<CheckpointManifest> manifest = CheckpointManifest::FromJson(text);
  if (!manifest.ok()) return Annotate(manifest.status(), uri);
  return manifest;
}

absl::Status Checkpoints::Read(const CheckpointManifest& manifest, const std::vector<MutableByteSpan>& into,
                               const std::stop_token& stop) const {
  return ReadShards(store_, memory_, Folder(manifest.step, manifest.attempt), manifest.shards, into, stop);
}

absl::StatusOr<uint64_t> Checkpoints::ReadRangesOf(const CheckpointManifest& manifest, std::vector<ShardRange> ranges,
                                                   const std::stop_token& stop) const {
  const std::string folder = Folder(manifest.step, manifest.attempt);
  return ReadRanges(store_, memory_, folder, manifest.shards, std::move(ranges), stop);
}

absl::Status Checkpoints::Verify(const CheckpointEntry& entry, const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadManifest(entry));
  if (manifest.step != entry.step || manifest.attempt != entry.attempt)
    return absl::DataLossError(fmt::format("{}: the manifest of step {} is that of another one", Uri(), entry.step));
  return Read(manifest, {}, stop);
}

absl::StatusOr<Checkpoints::Verified> Checkpoints::FindAndVerify(std::optional<uint64_t> step,
                                                                 const std::stop_token& stop) const {
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(CheckpointEntry entry, Find(step, stop));
    absl::Status status = Verify(entry, stop);
    if (!absl::IsNotFound(status) || tries == kMaxFinds) return Verified{std::move(entry), std::move(status)};
    ASSIGN_OR_RETURN(const bool committed, IsCommitted(entry, stop));
    if (committed) return Verified{std::move(entry), std::move(status)};
  }
}

}  // namespace millrace
