#include "channel/file_mode.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/errno_status.h"
#include "base/size.h"
#include "channel/channel_items.h"
#include "store/blocking.h"
#include "transfer/key_pattern.h"
#include "transfer/sync.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

std::string OriginFile(const TrainingJob& job, const Channel& channel) {
  return fmt::format("{}/input/config/channel-{}.uri", job.root, channel.name);
}

/// Returns the URI that the folder was filled from; "" if it was not.
std::string Origin(const TrainingJob& job, const Channel& channel) {
  std::ifstream file(OriginFile(job, channel));
  std::string uri;
  std::getline(file, uri);
  return uri;
}

absl::Status Empty(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    fs::remove_all(entry->path(), error);
    if (error) break;
  }
  return error ? ErrnoStatus(error.value(), folder, "empty") : absl::OkStatus();
}

/// The text names the source of the folder. The names in a manifest mean other objects if its prefix changes.
std::string OriginText(const Channel& channel, const ChannelItems* items) {
  if (channel.type == ChannelType::kS3Prefix) return channel.uri;
  return fmt::format("{} {}{}", channel.uri, items->root, items->prefix);
}

/// Represents the objects that a channel's URI names.
struct ChannelSource {
  Location from;                      // a folder; or the store of `items`
  std::optional<ChannelItems> items;  // if they are not all objects of a folder
};

absl::StatusOr<ChannelSource> OpenSource(Stores& stores, const TrainingJob& job, const Channel& channel,
                                         std::stop_token stop) {
  ChannelSource source;
  bool listed = channel.type != ChannelType::kS3Prefix || channel.sharded;
  if (!listed) {
    ASSIGN_OR_RETURN(listed, NamesObject(stores, channel.uri, stop));
  }
  if (listed) {
    ASSIGN_OR_RETURN(source.items, FindChannelItems(stores, channel, stop));
    if (channel.sharded) KeepShare(*source.items, job.RankIn(channel), job.HostsOf(channel).size());
    ASSIGN_OR_RETURN(source.from, stores.Open(source.items->root));
    return source;
  }
  ASSIGN_OR_RETURN(source.from, stores.Open(channel.uri));
  source.from.prefix = AsFolder(source.from.prefix);
  return source;
}

bool IsLike(const ObjectInfo& copy, const ObjectInfo& object) {
  constexpr int64_t kSecond = 1000;  // S3 tells whole ones
  return copy.size == object.size && copy.modified_ms / kSecond >= object.modified_ms / kSecond;
}

/// Calls `each` with what is to be done for the folder to have these items, and nothing else.
absl::Status CompareItems(const ChannelItems& items, const Location& to,
                          absl::FunctionRef<absl::Status(const SyncStep&)> each) {
  std::map<std::string, ObjectInfo> wanted;  // by key in the folder
  for (const ChannelPart& part : items.parts)
    wanted.emplace(to.Key(std::string_view(part.text).substr(items.prefix.size())), part.Object());
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> listed, ListAll(*to.store, to.prefix));
  std::map<std::string_view, const ObjectInfo*> present;
  for (const ObjectInfo& copy : listed) {
    present.emplace(copy.key, &copy);
    if (!wanted.contains(copy.key))
      RETURN_IF_ERROR(each({.kind = SyncStep::Kind::kRemove, .object = &copy, .key = copy.key, .why = {}}));
  }
  for (const auto& [key, object] : wanted) {
    SyncStep step{.kind = SyncStep::Kind::kCopy, .object = &object, .key = key, .why = {}};
    if (const auto copy = present.find(key); copy != present.end() && IsLike(*copy->second, object)) {
      step.kind = SyncStep::Kind::kKeep;
      step.kept = copy->second;
    }
    RETURN_IF_ERROR(each(step));
  }
  return absl::OkStatus();
}

/// Calls `each` with what is to be done for the folder to be like the source.
absl::Status Compare(const ChannelSource& source, const Location& to, std::stop_token stop,
                     absl::FunctionRef<absl::Status(const SyncStep&)> each) {
  // An empty source is an error of ours, with a message that fits.
  if (source.items) return CompareItems(*source.items, to, each);
  const auto is_data = [](std::string_view name) { return !IsOwnFile(name); };
  return CompareFolders(source.from, to, {.wanted = is_data, .stop = stop}, each);
}

absl::Status CheckFreeSpace(const Channel& channel, const std::string& folder, uint64_t bytes) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return ErrnoStatus(errno, folder, "statvfs");
  const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("channel {}: {} are to be copied to {}, which has room for {}; free some, or choose another --root",
                  channel.name, FormatSize(bytes), folder, FormatSize(free)));
}

absl::Status FirstFailure(const Channel& channel, const BulkReport& report) {
  if (report.failed == 0) return absl::OkStatus();
  const auto& [uri, status] = *report.failures.begin();
  return absl::Status(status.code(), fmt::format("channel {}: {} could not be copied; the first: {}", channel.name,
                                                 Counted(report.failed, "object"), ToStd(status.message())));
}

}  // namespace

absl::Status CheckFolderIsOurs(const TrainingJob& job, const Channel& channel) {
  const std::string folder = job.ChannelFolder(channel);
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) return ErrnoStatus(error.value(), folder, "open");
  if (error || entries == fs::directory_iterator() || !Origin(job, channel).empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("channel {}: {} has files that Millrace did not copy there; remove them, or choose another --root",
                  channel.name, folder));
}

absl::Status MakeJobTree(const TrainingJob& job) {
  for (const char* folder : {"input/config", "input/data", "model", "output/data", "checkpoints", "code"}) {
    const std::string path = fmt::format("{}/{}", job.root, folder);
    RETURN_IF_ERROR(MakeFolder(path, path, Durability::kUnsynced));
  }
  for (const auto& [name, text] : ConfigFiles(job)) {
    RETURN_IF_ERROR(WriteFileAtomically(fmt::format("{}/{}", job.root, name), text));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileModeReport> FillChannel(Stores& stores, const TrainingJob& job, const Channel& channel,
                                           const FileModeOptions& options) {
  const std::string folder = job.ChannelFolder(channel);
  RETURN_IF_ERROR(CheckFolderIsOurs(job, channel));
  ASSIGN_OR_RETURN(const ChannelSource source, OpenSource(stores, job, channel, options.stop));
  const std::string origin_text = OriginText(channel, source.items ? &*source.items : nullptr);
  RETURN_IF_ERROR(MakeFolder(folder, folder, Durability::kUnsynced));
  ASSIGN_OR_RETURN(Location to, stores.Open(folder));
  to.prefix = AsFolder(to.prefix);

  // Once to know how much there is to copy, before anything is; and once to copy it.
  FileModeReport report;
  uint64_t wanted_bytes = 0;
  uint64_t all_bytes = 0;
  RETURN_IF_ERROR(Compare(source, to, options.stop, [&](const SyncStep& step) {
    if (step.kind == SyncStep::Kind::kRemove) return absl::OkStatus();
    ++report.objects;
    all_bytes += step.object->size;
    if (step.kind == SyncStep::Kind::kCopy) wanted_bytes += step.object->size;
    return absl::OkStatus();
  }));
  if (report.objects == 0 && !channel.sharded) {
    return absl::NotFoundError(fmt::format("channel {}: {} has no objects; check the URI", channel.name, channel.uri));
  }
  if (const std::string origin = Origin(job, channel); !origin.empty() && origin != origin_text) {
    // Files of one name and size may be in both, and of other contents.
    RETURN_IF_ERROR(Empty(folder));
    wanted_bytes = all_bytes;
  }
  RETURN_IF_ERROR(CheckFreeSpace(channel, folder, wanted_bytes));
  RETURN_IF_ERROR(WriteFileAtomically(OriginFile(job, channel), origin_text + "\n"));

  BulkJob copies({.progress = options.progress, .stop = options.stop});
  const absl::Status compared = Compare(source, to, options.stop, [&](const SyncStep& step) {
    if (step.kind == SyncStep::Kind::kRemove) return copies.Remove(*to.store, *step.object);
    if (options.found) RETURN_IF_ERROR(options.found(source.from.store->Uri(step.object->key), *step.object));
    if (step.kind == SyncStep::Kind::kKeep) return absl::OkStatus();
    return copies.Copy(*source.from.store, *step.object, *to.store, step.key);
  });
  const auto [copied, removed] = copies.Finish();
  RETURN_IF_ERROR(FirstFailure(channel, copied));
  RETURN_IF_ERROR(FirstFailure(channel, removed));
  RETURN_IF_ERROR(compared);
  if (options.stop.stop_requested()) return absl::CancelledError(fmt::format("channel {}: interrupted", channel.name));
  report.copied = copied.objects;
  report.bytes = copied.bytes;
  return report;
}

}  // namespace millrace
