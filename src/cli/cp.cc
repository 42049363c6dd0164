#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/errno_status.h"
#include "base/size.h"
#include "cli/bulk_report.h"
#include "cli/cat.h"
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
#include "transfer/content_type.h"
#include "transfer/find_object.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

constexpr size_t kStdinPiece = 8 << 20;
constexpr int kInterruptSlice = 100;  // milliseconds that an interrupt waits for at most

struct CpFlags {
  std::string source;
  std::string target;
  NameFilters filters;
  bool recursive = false;
  bool dry_run = false;
  bool verify = false;
  std::string content_type;
  double outage_limit = kOutageLimitSeconds;
  bool json = false;
};

/// Takes what is to be copied: copies it, or with --dry-run says so.
class CopySink {
 public:
  CopySink(const CpFlags& flags, BulkJob& job) : flags_(flags), job_(job) {}

  // Cancelled if nothing more should come.
  absl::Status Take(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key) {
    if (!flags_.dry_run) return job_.Copy(from, std::move(source), to, std::move(key));
    const std::string uri = from.Uri(source.key);
    const std::string target = to.Uri(key);
    const absl::Status checked = CheckCanHold(to, key);
    said.Add(uri, source.size, checked);
    if (!checked.ok()) return absl::OkStatus();
    if (flags_.json)
      return WriteStdout(JsonObject{{"copy", uri}, {"to", target}, {"size", source.size}}.Versioned("cp"));
    return WriteStdout(fmt::format("would copy {} to {}\n", Printable(uri), Printable(target)));
  }

  BulkReport said;  // of a dry run

 private:
  const CpFlags& flags_;
  BulkJob& job_;
};

// Returns the target of one object: into a folder or bucket under its own name, or exactly the given name.
absl::StatusOr<Location> OneTarget(Stores& stores, const std::string& uri, std::string_view name) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  const bool container = parsed.path.empty() || parsed.path.ends_with('/') || IsFolder(parsed, Links::kFollow);
  if (!container) {
    RETURN_IF_ERROR(CheckObjectUri(uri));
    return stores.OpenObject(uri);
  }
  ASSIGN_OR_RETURN(Location location, stores.Open(uri));
  location.prefix = location.Key(name);
  return location;
}

absl::Status CopyOne(Stores& stores, const CpFlags& flags, CopySink& sink, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(flags.source));
  if (parsed.path.empty() || parsed.path.ends_with('/') || IsFolder(parsed, Links::kFollow)) {
    return UsageError("{} is not one object; add --recursive to copy what is below it", flags.source);
  }
  RETURN_IF_ERROR(CheckObjectUri(flags.source));
  if (!flags.filters.empty()) {
    return UsageError("{} is one object; --exclude and --include go with --recursive or a pattern", flags.source);
  }
  ASSIGN_OR_RETURN(const Location from, stores.OpenObject(flags.source));
  const std::string& key = from.prefix;
  ASSIGN_OR_RETURN(const Location to,
                   OneTarget(stores, flags.target, std::string_view(key).substr(key.rfind('/') + 1)));
  if (from.store == to.store && from.prefix == to.prefix) {
    return UsageError("{} and {} are the same object", flags.source, flags.target);
  }
  ASSIGN_OR_RETURN(ObjectInfo source, FindObject(from, "copy", stop));
  return sink.Take(*from.store, std::move(source), *to.store, to.prefix);
}

// Copies the objects below the source, or those that match it, to below the target. Matches keep their paths below the
// last folder without a wildcard, so that two objects of one name in two folders do not collide. For folders it fills
// `indexes`.
absl::Status CopyMany(Runtime& runtime, Stores& stores, const CpFlags& flags, const std::optional<Pattern>& pattern,
                      CopySink& sink, const std::stop_token& stop, std::optional<IndexCarrier>* indexes) {
  Location from;
  if (pattern) {
    from = {.store = pattern->store, .prefix = pattern->folder};
  } else {
    ASSIGN_OR_RETURN(from, stores.Open(flags.source));
    from.prefix = AsFolder(from.prefix);
  }
  ASSIGN_OR_RETURN(Location to, stores.Open(flags.target));
  to.prefix = AsFolder(to.prefix);
  const std::string below = from.store->Uri(from.prefix);
  if (to.store->Uri(to.prefix).starts_with(below) &&
      (flags.recursive || pattern->pattern.find("**") != std::string::npos)) {
    return UsageError("{} lies in {}, which {} be copied into itself", flags.target, pattern ? below : flags.source,
                      pattern ? "may" : "would");
  }
  bool found = false;
  const auto copy = [&](const ObjectInfo& object) -> absl::Status {
    if (IsFolderMarker(object)) return absl::OkStatus();
    found = true;
    const std::string_view name = std::string_view(object.key).substr(from.prefix.size());
    if (!IsWanted(flags.filters, name)) return absl::OkStatus();
    if (*indexes && IndexCarrier::IsIndex(name)) {
      (*indexes)->AddIndex(name, /*listed=*/true);
      return absl::OkStatus();
    }
    std::string key = to.Key(name);
    if (to.store == from.store && key == object.key) {
      return UsageError("{} would be copied onto itself", to.store->Uri(key));
    }
    return sink.Take(*from.store, object, *to.store, std::move(key));
  };
  if (pattern) return ExpandObjects(*pattern, flags.recursive, copy, stop);
  indexes->emplace(runtime, stores, from, to);
  if (IsWanted(flags.filters, kIndexName)) (*indexes)->AddIndex(kIndexName, /*listed=*/false);
  RETURN_IF_ERROR(ForEachObject(*from.store, from.prefix, copy, stop));
  return found ? absl::OkStatus() : absl::NotFoundError(fmt::format("{}: there is nothing below it to copy", below));
}

// Returns the bytes of standard input, up to its end or the size of `piece`; empty at its end.
absl::StatusOr<MutableByteSpan> ReadStdin(MutableByteSpan piece) {
  size_t filled = 0;
  while (filled < piece.size()) {
    if (Interrupted()) return absl::CancelledError("interrupted; nothing was written");
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (poll(&input, 1, kInterruptSlice) <= 0) continue;  // read() would go on after an interrupt
    const ssize_t n = read(STDIN_FILENO, piece.data() + filled, piece.size() - filled);
    if (n == 0) break;
    if (n < 0 && errno != EINTR && errno != EAGAIN) return ErrnoStatus(errno, "standard input", "reading");
    if (n > 0) filled += static_cast<size_t>(n);
  }
  return piece.first(filled);
}

PutOptions StdinOptions(const CpFlags& flags, std::string_view key) {
  PutOptions put;
  put.content_type = flags.content_type.empty() ? std::string(ContentTypeOf(key)) : flags.content_type;
  return put;
}

absl::Status CopyStdin(Stores& stores, const CpFlags& flags, BulkReport* report) {
  RETURN_IF_ERROR(CheckObjectUri(flags.target));
  ASSIGN_OR_RETURN(const ParsedUri target, ParseUri(flags.target));
  if (IsFolder(target, Links::kFollow)) {
    return UsageError("{} is a folder; append the name that standard input is to have there", flags.target);
  }
  ASSIGN_OR_RETURN(const Location to, stores.OpenObject(flags.target));
  // Files that stay harm nothing, and if the folder cannot be written to, the writer says so.
  to.store->RemoveTemporary(to.prefix.substr(0, to.prefix.rfind('/') + 1)).IgnoreError();
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer,
                   to.store->Write(to.prefix, StdinOptions(flags, to.prefix)));
  ProgressLine progress("copied", ProgressLine::Unit::kBytes);
  Buffer buffer(kStdinPiece);
  for (;;) {
    ASSIGN_OR_RETURN(const ByteSpan piece, ReadStdin(buffer.span()));
    if (piece.empty()) break;
    RETURN_IF_ERROR(writer->Append(piece));
    report->bytes += piece.size();
    progress.Update(report->bytes, 0);
  }
  RETURN_IF_ERROR(writer->Commit().status());
  report->objects = 1;
  return absl::OkStatus();
}

absl::Status PrintReport(const CpFlags& flags, const BulkReport& report, uint64_t skipped, uint64_t indexes,
                         double seconds) {
  FailEach("cp", report.failures, report.failed);
  if (report.objects == 0 && report.failed > 0 && !flags.json) return absl::OkStatus();  // what failed was said
  if (flags.json) {
    return WriteStdout(JSON_OF(report.objects, report.bytes, report.unverified, report.read_twice, report.failed,
                               skipped, indexes, seconds, flags.dry_run)
                           .Versioned("cp"));
  }
  const std::string copied =
      flags.dry_run ? "would copy " + Counted(report.objects, "object") : CopiedText(report, indexes);
  return WriteStdout(fmt::format("{}, {}, in {:.1f} s\n", copied, FormatSize(report.bytes), seconds));
}

// "-": standard input or output.
absl::Status CheckStreams(const CpFlags& flags) {
  const bool out = flags.target == "-";
  if (!out && flags.source != "-") return absl::OkStatus();
  const char* wrong = nullptr;
  if (flags.verify) wrong = "--verify does not go with '-', which cannot be read twice, nor taken back";
  if (flags.recursive) wrong = "--recursive does not go with '-', which is one object";
  if (flags.dry_run) wrong = "--dry-run does not go with '-'";
  if (!flags.filters.empty()) wrong = "--exclude and --include do not go with '-', which is one object";
  if (out && flags.json) wrong = "--json does not go with '-', since the object takes standard output";
  if (out && flags.source == "-") wrong = "'-' to '-' copies nothing; name an object (./- is a file of that name)";
  return wrong == nullptr ? absl::OkStatus() : AsUsage(absl::InvalidArgumentError(wrong));
}

absl::StatusOr<bool> Cp(const CpFlags& flags) {
  RETURN_IF_ERROR(CheckStreams(flags));
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds outage_limit, TakeOutageLimit(flags.outage_limit));
  if (flags.target == "-") {
    RETURN_IF_ERROR(WriteObjects({flags.source}, ""));
    return true;
  }
  RETURN_IF_ERROR(CheckUri(flags.source));
  RETURN_IF_ERROR(CheckUri(flags.target));
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  stores.SetOutageLimit(outage_limit);
  const auto start = std::chrono::steady_clock::now();
  BulkReport report;
  uint64_t skipped = 0;  // what is neither a file nor a folder
  uint64_t carried = 0;  // indexes
  absl::Status listed;
  if (flags.source == "-") {
    RETURN_IF_ERROR(CopyStdin(stores, flags, &report));
  } else {
    ProgressLine progress("copied", ProgressLine::Unit::kBytes);
    std::optional<IndexCarrier> indexes;
    BulkJob job({.progress = [&](const BulkProgress& now) { progress.Update(now.copied_bytes, now.total_bytes); },
                 .copied =
                     [&](const ObjectInfo& source, const std::string&, const ObjectInfo& copy) {
                       if (indexes) indexes->AddCopy(source, copy);
                     },
                 .read_twice = flags.verify,
                 .content_type = flags.content_type,
                 .stop = interrupt.token()});
    CopySink sink(flags, job);
    ASSIGN_OR_RETURN(
        const std::optional<Pattern> pattern,
        OpenPattern(stores, flags.source, flags.recursive ? Named::kFolder : Named::kObject, interrupt.token()));
    const absl::Status status = pattern || flags.recursive
                                    ? CopyMany(runtime, stores, flags, pattern, sink, interrupt.token(), &indexes)
                                    : CopyOne(stores, flags, sink, interrupt.token());
    if (absl::IsAborted(status)) return status;
    // Copies that have begun are finished and reported, also if a listing failed.
    report = job.Finish().copied;
    if (flags.dry_run) report = std::move(sink.said);
    progress.Clear();
    if (indexes) {
      const auto wanted = [&](std::string_view name) { return IsWanted(flags.filters, name); };
      skipped = TellPassedOver(indexes->from(),
                               {.command = "cp", .done = "copied", .wanted = wanted, .stop = interrupt.token()});
      if (status.ok() && report.failed == 0 && !flags.dry_run)
        carried = CarryIndexes("cp", *indexes, /*changed=*/true, interrupt.token());
    }
    listed = absl::IsCancelled(status) ? absl::OkStatus() : status;  // the report says why
  }
  const double seconds = SecondsSince(start);
  if (listed.ok() || report.objects + report.failed > 0)
    RETURN_IF_ERROR(PrintReport(flags, report, skipped, carried, seconds));
  RETURN_IF_ERROR(listed);
  if (Interrupted()) {
    return absl::CancelledError(
        flags.dry_run ? "interrupted; nothing was copied (--dry-run)"
                      : fmt::format("interrupted; copied {} until then", Counted(report.objects, "object")));
  }
  return report.failed == 0;
}

}  // namespace

void AddCp(Command app) {
  const Command cp = app.AddCommand("cp", "Copy objects between stores, many at a time");
  auto flags = std::make_shared<CpFlags>();
  cp.Add("source", &flags->source,
         "An object, a pattern with * ** ? [a-z], with --recursive a prefix or folder; '-': standard input")
      .Required();
  cp.Add("target", &flags->target,
         "A name; a bucket, a folder or what ends with '/', to keep the object's name; '-': standard output")
      .Required();
  cp.AddFlag("-r,--recursive", &flags->recursive, "Copy everything below the source to below the target");
  cp.AddFlag("--dry-run,--dryrun", &flags->dry_run, "Say what would be copied, and copy nothing");
  const auto filters = AddNameFilters(cp);
  cp.AddFlag("--verify", &flags->verify, "Read objects that have no checksum in the store twice, and compare");
  cp.Add("--content-type TYPE", &flags->content_type,
         "The Content-Type of uploads to S3 [by their names: image/jpeg for 1.jpg]");
  cp.AddShown("--outage-limit SECONDS", &flags->outage_limit, kOutageLimitHelp);
  cp.AddFlag("--json", &flags->json,
             R"(One JSON object at the end: {"objects", "bytes", "unverified", "read_twice", "failed", "skipped", )"
             R"("indexes", "seconds", "dry_run"}; with --dry-run {"copy", "to", "size"} for each object before)");
  cp.Footer(
      "Each object appears whole or not at all, and replaces an older one. Objects that fail are named, and the others "
      "are copied. An object that matches a pattern keeps its path below the last folder without a wildcard. '*' stays "
      "within one folder, '**' does not. Quote patterns, so that the shell leaves them alone. Between buckets of one "
      "store the store itself copies, with type and metadata. Other objects of S3 are verified against the checksum "
      "that the store keeps. The report counts objects without a checksum; files do not have one and are not counted. "
      "Pipes, sockets, devices, and links that lead nowhere or back are not copied, but named. Files that are replaced "
      "keep their permissions, and files get the time of their source's last change. If a data set is copied whole, "
      "its index is copied with the ETags of the copies, so that nothing is read again.\n\n" +
      std::string(kFiltersHelp) +
      "\n\n"
      "Examples:\n"
      "  millrace cp shard-000000.tar s3://bucket/train/\n"
      "  millrace cp s3://bucket/train/shard-000000.tar .\n"
      "  millrace cp 's3://bucket/train/shard-00000[0-3].tar' /data/few/\n"
      "  millrace cp --recursive s3://bucket/train /data/train\n"
      "  millrace cp --recursive /data/train s3://bucket/copy\n"
      "  millrace cp --recursive s3://bucket/train s3://other/train\n"
      "  millrace cp -r s3://bucket/train /data/train --exclude '*' --include '*.tar' --dry-run\n"
      "  tar c photos | millrace cp - s3://bucket/photos.tar\n"
      "  millrace cp s3://bucket/photos.tar - | tar t");
  cp.Run([flags, filters] {
    flags->filters = filters();
    return ExitStatus("cp", HintAtS3(Cp(*flags), {flags->source}));
  });
}

}  // namespace millrace::cli
