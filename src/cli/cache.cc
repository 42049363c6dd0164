#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/counted.h"
#include "base/size.h"
#include "cache/cache_tools.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"

namespace millrace::cli {

namespace {

constexpr const char* kFolderHelp = "The folder that was given to --cache";

struct CacheFlags {
  std::string folder;
  std::string prefix;
  bool json = false;
};

std::shared_ptr<CacheFlags> AddFolder(const Command& command, const char* json_help) {
  auto flags = std::make_shared<CacheFlags>();
  command.Add("folder DIR", &flags->folder, kFolderHelp).Required();
  command.AddFlag("--json", &flags->json, json_help);
  return flags;
}

absl::Status ListCache(const CacheFlags& flags) {
  const InterruptStop interrupt;
  return ForEachCachedObject(flags.folder, interrupt.token(), [&](const CachedObject& object) {
    if (!object.uri().starts_with(flags.prefix)) return absl::OkStatus();
    if (flags.json) {
      return WriteStdout(JSON_OF(object.uri(), object.identity.etag, object.identity.tenant,
                                 Named("bytes", object.object_bytes), object.cached_bytes, object.ranges,
                                 object.disk_bytes)
                             .Versioned("cache.ls"));
    }
    const double share = object.object_bytes == 0 ? 100
                                                  : 100 * static_cast<double>(object.cached_bytes) /
                                                        static_cast<double>(object.object_bytes);
    return WriteStdout(
        fmt::format("{:>10} {:>4.0f} % {}\n", FormatSize(object.cached_bytes), share, Printable(object.uri())));
  });
}

std::string JobName(const CacheSummary::Job& job) {
  if (!job.alive) return "of jobs that have ended";
  if (job.job == UseHints::kUnplanned) return "of readers without a plan";
  return fmt::format(
      "of a job in epoch {} ({:.0f} %)", job.clock.clock / job.clock.period,
      100.0 * static_cast<double>(job.clock.clock % job.clock.period) / static_cast<double>(job.clock.period));
}

std::string StatJson(const CacheSummary& found) {
  JsonArray jobs;
  for (const CacheSummary::Job& job : found.jobs) {
    JsonObject one{{"alive", job.alive}, {"ranges", job.ranges}, {"bytes", job.bytes}};
    const bool planned = job.alive && job.job != UseHints::kUnplanned;
    if (job.alive) one.Add("planned", planned);
    if (planned) one.Add("position", job.clock.clock).Add("period", job.clock.period);
    jobs.Add(one);
  }
  return JSON_OF(found.objects, found.ranges, found.cached_bytes, found.pinned_bytes, found.disk_bytes,
                 found.unsound_files, found.file_system_bytes, found.free_bytes, jobs)
      .Versioned("cache.stat");
}

absl::Status StatCache(const CacheFlags& flags) {
  const InterruptStop interrupt;
  ASSIGN_OR_RETURN(const CacheSummary found, SummarizeCache(flags.folder, interrupt.token()));
  if (flags.json) return WriteStdout(StatJson(found));
  std::string text =
      fmt::format("{} of {} in {}; {} of the disk, of which {} of {} are free\n", FormatSize(found.cached_bytes),
                  Counted(found.objects, "object"), Counted(found.ranges, "range"), FormatSize(found.disk_bytes),
                  FormatSize(found.free_bytes), FormatSize(found.file_system_bytes));
  for (const CacheSummary::Job& job : found.jobs) {
    if (job.alive || job.ranges > 0) text += fmt::format("  {:>10} {}\n", FormatSize(job.bytes), JobName(job));
  }
  if (found.pinned_bytes > 0) text += fmt::format("  {:>10} pinned\n", FormatSize(found.pinned_bytes));
  if (found.unsound_files > 0) {
    text += fmt::format("{} damaged or of another version; 'millrace cache verify' removes them\n",
                        Counted(found.unsound_files, "file"));
  }
  return WriteStdout(text);
}

absl::Status VerifyIt(const CacheFlags& flags) {
  const InterruptStop interrupt;
  CacheCheck check;
  {
    ProgressLine progress("verifying " + flags.folder, ProgressLine::Unit::kBytes);
    ASSIGN_OR_RETURN(check, VerifyCache(flags.folder, progress.Task(interrupt.token())));
  }
  const std::string text =
      flags.json ? JSON_OF(check.objects, check.ranges, check.bytes, check.damaged_ranges, check.unsound_files)
                       .Versioned("cache.verify")
                 : fmt::format("{} in {} of {} were read\n", FormatSize(check.bytes), Counted(check.ranges, "range"),
                               Counted(check.objects, "object"));
  RETURN_IF_ERROR(WriteStdout(text));
  if (check.damaged_ranges == 0 && check.unsound_files == 0) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("{}: {} and {} were damaged, and are removed, so that they are read from the "
                  "store again",
                  flags.folder, Counted(check.damaged_ranges, "range"), Counted(check.unsound_files, "file")));
}

absl::Status ClearIt(const CacheFlags& flags) {
  const InterruptStop interrupt;
  CacheClearing cleared;
  {
    ProgressLine progress("clearing " + flags.folder, ProgressLine::Unit::kItems);
    ASSIGN_OR_RETURN(cleared, ClearCache(flags.folder, flags.prefix, progress.Task(interrupt.token())));
  }
  if (flags.json) return WriteStdout(JSON_OF(cleared.objects, cleared.disk_bytes).Versioned("cache.clear"));
  return WriteStdout(fmt::format("removed the cached bytes of {}: {} of the disk\n", Counted(cleared.objects, "object"),
                                 FormatSize(cleared.disk_bytes)));
}

void AddCacheLs(const Command& cache) {
  const Command ls = cache.AddCommand("ls", "List the objects of which the cache has bytes");
  auto flags = AddFolder(
      ls, R"(One JSON object a line: {"uri", "etag", "tenant", "bytes", "cached_bytes", "ranges", "disk_bytes"})");
  ls.Add("--uri", &flags->prefix, "List only objects whose URI begins with this");
  ls.Footer("Examples:\n  millrace cache ls /nvme/millrace --uri s3://bucket/train/");
  ls.Run([flags] { return ExitStatus("cache", ListCache(*flags)); });
}

void AddCacheStat(const Command& cache) {
  const Command stat = cache.AddCommand("stat", "Show the size of the cache, and the jobs that use it");
  auto flags = AddFolder(
      stat, R"(One JSON object: {"objects", "ranges", "cached_bytes", "pinned_bytes", "disk_bytes", "unsound_files", )"
            R"("file_system_bytes", "free_bytes", "jobs": [{"alive", "ranges", "bytes", ...}]})");
  stat.Footer("Examples:\n  millrace cache stat /nvme/millrace --json");
  stat.Run([flags] { return ExitStatus("cache", StatCache(*flags)); });
}

void AddCacheVerify(const Command& cache) {
  const Command verify = cache.AddCommand("verify", "Read all cached bytes and compare them with their checksums");
  auto flags =
      AddFolder(verify, R"(One JSON object: {"objects", "ranges", "bytes", "damaged_ranges", "unsound_files"})");
  verify.Footer(
      "Damaged ranges are removed, so that they are read from the store again. The exit status is 1 if there were any. "
      "Loaders and mounts may use the cache meanwhile.\n\nExamples:\n  millrace cache verify /nvme/millrace");
  verify.Run([flags] { return ExitStatus("cache", VerifyIt(*flags)); });
}

void AddCacheClear(const Command& cache) {
  const Command clear = cache.AddCommand("clear", "Remove the cached bytes, and nothing else");
  auto flags = AddFolder(clear, R"(One JSON object: {"objects", "disk_bytes"})");
  clear.Add("--uri", &flags->prefix, "Remove only the bytes of objects whose URI begins with this");
  clear.Footer(
      "Only files of the cache are removed, by their names; other files in the folder stay. Loaders and mounts "
      "that use the cache continue, and read from the store.\n\nExamples:\n"
      "  millrace cache clear /nvme/millrace\n"
      "  millrace cache clear /nvme/millrace --uri s3://bucket/old/");
  clear.Run([flags] { return ExitStatus("cache", ClearIt(*flags)); });
}

}  // namespace

void AddCache(Command app) {
  const Command cache = app.AddCommand("cache", "Fill, look at, verify and empty a cache on a local disk; predict it");
  cache.Footer(
      "Examples:\n"
      "  millrace cache warm s3://bucket/train --cache /nvme/millrace --cache-size 500GiB\n"
      "  millrace cache stat /nvme/millrace\n"
      "  millrace cache simulate s3://bucket/train --capacity 100GiB,200GiB --epochs 10");
  AddCacheWarm(cache);
  AddCacheLs(cache);
  AddCacheStat(cache);
  AddCacheVerify(cache);
  AddCacheClear(cache);
  AddCacheSimulate(cache);
}

}  // namespace millrace::cli
