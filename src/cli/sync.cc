#include "transfer/sync.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/counted.h"
#include "base/size.h"
#include "cli/bulk_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/name_filter.h"
#include "cli/usage.h"
#include "dataset/dataset_place.h"
#include "dataset/index_carrier.h"
#include "store/blocking.h"
#include "store/checks.h"
#include "store/stores.h"
#include "store/uri.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

struct SyncFlags {
  double outage_limit = kOutageLimitSeconds;
  std::string source;
  std::string target;
  NameFilters filters;
  bool remove = false;
  bool dry_run = false;
  bool json = false;
};

/// Represents the work that was done, or that --dry-run has announced.
struct Done {
  BulkReport copied;
  BulkReport removed;
  uint64_t unchanged = 0;
  uint64_t skipped = 0;                // what is neither a file nor a folder
  uint64_t indexes = 0;                // that were carried over
  std::vector<ObjectInfo> only_there;  // indexes that the source does not have beside its data
};

absl::Status Say(const SyncFlags& flags, const Location& from, const Location& to, const SyncStep& step) {
  const std::string target = to.store->Uri(step.key);
  if (step.kind == SyncStep::Kind::kRemove) {
    if (flags.json) return WriteStdout(JsonObject{{"remove", target}, {"size", step.object->size}}.Versioned("sync"));
    return WriteStdout(fmt::format("would remove {}\n", Printable(target)));
  }
  const std::string source = from.store->Uri(step.object->key);
  if (flags.json) {
    return WriteStdout(
        JsonObject{{"copy", source}, {"to", target}, {"size", step.object->size}, {"why", step.why}}.Versioned("sync"));
  }
  return WriteStdout(fmt::format("would copy {} to {} ({})\n", Printable(source), Printable(target), step.why));
}

// A step that the run would refuse is an error here, too.
absl::Status Announce(const SyncFlags& flags, const Location& from, const Location& to, const SyncStep& step,
                      Done* done) {
  const bool removes = step.kind == SyncStep::Kind::kRemove;
  const absl::Status checked = removes ? BulkJob::CheckRemoval(*to.store, step.key) : CheckCanHold(*to.store, step.key);
  const std::string uri = (removes ? to : from).store->Uri(step.object->key);
  (removes ? done->removed : done->copied).Add(uri, step.object->size, checked);
  return checked.ok() ? Say(flags, from, to, step) : absl::OkStatus();
}

absl::Status Take(const SyncFlags& flags, const Location& from, const Location& to, const SyncStep& step, BulkJob& job,
                  IndexCarrier& indexes, Done* done) {
  const bool removes = step.kind == SyncStep::Kind::kRemove;
  if (removes && !flags.remove) return absl::OkStatus();
  const std::string_view name = std::string_view(step.key).substr(to.prefix.size());
  if (IndexCarrier::IsIndex(name)) {
    // One that only the target has may have been carried from the source's cache folder: it goes if it was not.
    indexes.AddIndex(name, /*listed=*/!removes);
    if (removes) done->only_there.push_back(*step.object);
  } else if (step.kind == SyncStep::Kind::kKeep) {
    indexes.AddKept(*step.object, *step.kept);
    ++done->unchanged;
  } else if (flags.dry_run) {
    return Announce(flags, from, to, step, done);
  } else {
    return removes ? job.Remove(*to.store, *step.object) : job.Copy(*from.store, *step.object, *to.store, step.key);
  }
  return absl::OkStatus();
}

// Runs with --delete, once the objects of the source are known.
void RemoveForeignIndexes(const Location& to, const IndexCarrier& indexes, Done* done) {
  for (const ObjectInfo& index : done->only_there) {
    if (Interrupted() || indexes.SourceHas(std::string_view(index.key).substr(to.prefix.size()))) continue;
    done->removed.Add(to.store->Uri(index.key), index.size, DeleteBlocking(*to.store, index.key));
  }
}

absl::Status PrintSyncReport(const SyncFlags& flags, const Done& done, double seconds) {
  FailEach("sync", done.copied.failures, done.copied.failed);
  FailEach("sync", done.removed.failures, done.removed.failed);
  if (flags.json) {
    return WriteStdout(JSON_OF(Named("copied", done.copied.objects), done.copied.bytes, done.copied.unverified,
                               done.copied.read_twice, Named("removed", done.removed.objects),
                               Named("failed", done.copied.failed + done.removed.failed), done.skipped, done.indexes,
                               seconds, done.unchanged, flags.dry_run)
                           .Versioned("sync"));
  }
  return WriteStdout(fmt::format("{}{}, {}, removed {}, unchanged {}, in {:.1f} s\n",
                                 flags.dry_run ? "would have " : "", CopiedText(done.copied, done.indexes),
                                 FormatSize(done.copied.bytes), done.removed.objects, done.unchanged, seconds));
}

// Neither may lie in the other: copies would be copied, and what is not in the source removed from the source.
absl::Status CheckApart(const SyncFlags& flags, const Location& from, const Location& to) {
  const std::string source = from.store->Uri(from.prefix);
  const std::string target = to.store->Uri(to.prefix);
  if (!source.starts_with(target) && !target.starts_with(source)) return absl::OkStatus();
  return UsageError("{} and {} are the same place, or one lies in the other", flags.source, flags.target);
}

absl::StatusOr<bool> Sync(const SyncFlags& flags) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds outage_limit, TakeOutageLimit(flags.outage_limit));
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  stores.SetOutageLimit(outage_limit);
  ASSIGN_OR_RETURN(Location from, stores.Open(flags.source));
  ASSIGN_OR_RETURN(Location to, stores.Open(flags.target));
  from.prefix = AsFolder(from.prefix);
  to.prefix = AsFolder(to.prefix);
  RETURN_IF_ERROR(CheckApart(flags, from, to));
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress("copied", ProgressLine::Unit::kBytes);
  IndexCarrier indexes(runtime, stores, from, to);
  if (IsWanted(flags.filters, kIndexName)) indexes.AddIndex(kIndexName, /*listed=*/false);
  BulkJob job({.progress = [&](const BulkProgress& now) { progress.Update(now.copied_bytes, now.total_bytes); },
               .copied = [&](const ObjectInfo& source, const std::string&,
                             const ObjectInfo& copy) { indexes.AddCopy(source, copy); },
               .stop = interrupt.token()});
  const SyncOptions options{.wanted = [&](std::string_view name) { return IsWanted(flags.filters, name); },
                            .removes = flags.remove,
                            .stop = interrupt.token()};
  Done done;
  absl::Status status = CompareFolders(
      from, to, options, [&](const SyncStep& step) { return Take(flags, from, to, step, job, indexes, &done); });
  if (absl::IsAborted(status)) return status;
  // Steps that have begun are finished and reported, also if a listing failed.
  auto [copied, removed] = job.Finish();
  if (!flags.dry_run) {
    done.copied = std::move(copied);
    done.removed = std::move(removed);
  }
  progress.Clear();
  if (status.ok()) {
    done.skipped = TellPassedOver(
        from, {.command = "sync", .done = "copied", .wanted = options.wanted, .stop = interrupt.token()});
  }
  if (status.ok() && done.copied.failed + done.removed.failed == 0 && !flags.dry_run) {
    const bool changed = done.copied.objects + done.removed.objects > 0;
    done.indexes = CarryIndexes("sync", indexes, changed, interrupt.token());
    RemoveForeignIndexes(to, indexes, &done);
  }
  const double seconds = SecondsSince(start);
  RETURN_IF_ERROR(PrintSyncReport(flags, done, seconds));
  if (!absl::IsCancelled(status)) RETURN_IF_ERROR(status);  // else the report says why
  if (Interrupted()) {
    if (flags.dry_run) return absl::CancelledError("interrupted; nothing was copied or removed (--dry-run)");
    return absl::CancelledError(
        fmt::format("interrupted; copied {} until then; the same command continues with the rest",
                    Counted(done.copied.objects, "object")));
  }
  return done.copied.failed == 0 && done.removed.failed == 0;
}

constexpr const char* kSyncFooter =
    R"(Copies objects that the target lacks, that differ in size, or that are newer in the source, as 'aws s3 sync' does. S3
keeps the time of an object in whole seconds, so with a bucket on either side whole seconds are compared. If an object is
replaced by one of the same size in the second of its upload, that is not noticed. Each object appears whole or not at all.
After an interruption the same command continues with the rest. Between buckets of one store the store itself copies, with
type and metadata. Other objects of S3 are verified against the checksum that the store keeps. The report counts objects
without a checksum; files do not have one and are not counted. Pipes, sockets, devices, and links that lead nowhere or back
are not copied, but named. Files that are replaced keep their permissions. The index of a data set is copied with the ETags
of the copies, so that nothing is read again.

--exclude and --include take patterns of the whole path below the source, as 'aws s3 sync' does: '*' matches any
characters, '/' too, and '?' and [a-z] one character. If several patterns match, the last one counts. --delete
does not remove excluded objects either.

Examples:
  millrace sync /data/train s3://bucket/train
  millrace sync s3://bucket/train /data/train --delete --dry-run
  millrace sync s3://bucket/a s3://other/a --exclude '*.tmp' --exclude 'logs/*'
  millrace sync /data/train s3://bucket/train --exclude '*' --include '*.tar')";

}  // namespace

void AddSync(Command app) {
  const Command sync =
      app.AddCommand("sync", "Make one place like another: copy objects that are missing, newer or changed");
  auto flags = std::make_shared<SyncFlags>();
  sync.Add("source", &flags->source, "A prefix or folder").Required();
  sync.Add("target", &flags->target, "A prefix or folder").Required();
  sync.AddFlag("--delete", &flags->remove, "Remove objects from the target that the source does not have");
  sync.AddFlag("--dry-run,--dryrun", &flags->dry_run, "Say what would be done, and do nothing");
  const auto filters = AddNameFilters(sync);
  sync.AddShown("--outage-limit SECONDS", &flags->outage_limit, kOutageLimitHelp);
  sync.AddFlag(
      "--json", &flags->json,
      R"(One JSON object at the end: {"copied", "bytes", "unverified", "read_twice", "removed", "unchanged", )"
      R"("failed", "skipped", "indexes", "seconds", "dry_run"}; with --dry-run a line for each object before)");
  sync.Footer(kSyncFooter);
  sync.Run([flags, filters] {
    flags->filters = filters();
    for (const std::string& uri : {flags->source, flags->target}) {
      if (const absl::Status usage = ParseUri(uri).status(); !usage.ok()) return Fail("sync", AsUsage(usage));
    }
    return ExitStatus("sync", HintAtS3(Sync(*flags), {flags->source}));
  });
}

}  // namespace millrace::cli
