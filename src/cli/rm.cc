#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/size.h"
#include "cli/bulk_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/name_filter.h"
#include "cli/usage.h"
#include "store/blocking.h"
#include "store/glob.h"
#include "store/stores.h"
#include "store/uri.h"
#include "transfer/bulk_job.h"
#include "transfer/find_object.h"
#include "transfer/key_pattern.h"
#include "transfer/other_files.h"

namespace millrace::cli {

namespace {

struct RmFlags {
  std::vector<std::string> uris;
  NameFilters filters;
  bool recursive = false;
  bool yes = false;
  bool dry_run = false;
  bool json = false;
};

// All of them before anything is removed.
absl::Status CheckUsage(const RmFlags& flags) {
  for (const std::string& uri : flags.uris) {
    ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
    std::error_code ignored;
    const bool file = parsed.scheme == ParsedUri::Scheme::kFile;
    if (file && std::filesystem::weakly_canonical(parsed.path, ignored) == "/") {
      return absl::InvalidArgumentError(fmt::format("{} is everything on this machine; it is not removed", uri));
    }
    const bool many = parsed.path.empty() || parsed.path.ends_with('/') || IsFolder(parsed, Links::kKeep);
    if (flags.recursive || HasWildcard(parsed.path)) continue;
    if (!many && !flags.filters.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("{} is one object; --exclude and --include go with --recursive or a pattern", uri));
    }
    if (!many) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} is {}, not one object; add --recursive to remove everything in it", uri,
                    parsed.path.empty() ? "a whole bucket" : "a folder"));
  }
  return absl::OkStatus();
}

// Returns true if no literal text limits which keys of the bucket may be removed: s3://bucket, s3://bucket/*.tmp.
bool ReachesWholeBucket(const ParsedUri& uri) {
  return uri.scheme == ParsedUri::Scheme::kS3 && GlobLiteralPrefix(uri.path).empty();
}

std::string QuestionAbout(const ParsedUri& uri, const NameFilters& filters) {
  std::string limits;
  if (!uri.path.empty()) limits = fmt::format(" that matches '{}'", Printable(uri.path));
  if (!filters.empty()) limits += limits.empty() ? " that the filters name" : " and that the filters name";
  return fmt::format("Remove everything in the bucket s3://{}{}?", uri.store, limits);
}

// A bucket that is named by mistake holds more than any prefix. A script must say that it means it, and a person is
// asked. Nothing is removed before all answers are there.
absl::Status ConfirmBuckets(const RmFlags& flags) {
  if (flags.yes || flags.dry_run) return absl::OkStatus();
  for (const std::string& uri : flags.uris) {
    ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
    if (!ReachesWholeBucket(parsed)) continue;
    if (!AtTerminal()) {
      return UsageError("{} {} a whole bucket; add --yes to remove objects from all of it without a question", uri,
                        parsed.path.empty() ? "is" : "may match keys of");
    }
    if (!Confirm(QuestionAbout(parsed, flags.filters))) {
      return absl::CancelledError(fmt::format("{}: not confirmed; nothing was removed", uri));
    }
  }
  return absl::OkStatus();
}

/// Takes what is to be removed: removes it, or with --dry-run says so.
class Sink {
 public:
  Sink(const RmFlags& flags, BulkJob& job) : flags_(flags), job_(job) {}

  // Cancelled if nothing more should come. The filters are about the key without its first `below` bytes.
  absl::Status Take(ObjectStore& store, const ObjectInfo& object, size_t below) {
    if (!IsWanted(flags_.filters, std::string_view(object.key).substr(below))) return absl::OkStatus();
    if (!flags_.dry_run) return job_.Remove(store, object);
    const std::string uri = store.Uri(object.key);
    const absl::Status checked = BulkJob::CheckRemoval(store, object.key);
    done.Add(uri, object.size, checked);
    return checked.ok() ? Say(uri, object.size) : absl::OkStatus();
  }

  // A file that a writer has not finished, and maybe never will.
  absl::Status TakeTemporary(const std::string& path, uint64_t size, std::string_view name) {
    if (!IsWanted(flags_.filters, name)) return absl::OkStatus();
    if (!flags_.dry_run) {
      done.Add(path, size, RemoveTemporaryFile(path));
      return absl::OkStatus();
    }
    done.Add(path, size, absl::OkStatus());
    return Say(path, size);
  }

  BulkReport done;                // of a dry run, and of temporary files
  std::vector<Location> folders;  // of files, of which everything was taken

 private:
  absl::Status Say(const std::string& uri, uint64_t size) const {
    if (flags_.json) return WriteStdout(JsonObject{{"remove", uri}, {"size", size}}.Versioned("rm"));
    return WriteStdout(fmt::format("would remove {}\n", Printable(uri)));
  }

  const RmFlags& flags_;
  BulkJob& job_;
};

absl::Status RemoveBelow(Stores& stores, const std::string& uri, Sink& sink, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Location location, stores.Open(uri));
  const std::string below = AsFolder(location.prefix);
  bool found = false;
  const auto take = [&](const ObjectInfo& object) {
    found = true;
    return sink.Take(*location.store, object, below.size());
  };
  RETURN_IF_ERROR(ForEachObject(*location.store, below, take, stop));
  const std::string folder = location.store->Uri(below);
  if (location.store->traits().is_folder()) {
    const auto take_temporary = [&](const OtherFile& file) {
      found = true;
      return file.kind == OtherFile::Kind::kTemporary ? sink.TakeTemporary(folder + file.name, file.size, file.name)
                                                      : absl::OkStatus();
    };
    RETURN_IF_ERROR(ForEachOtherFile(folder, {.follow_links = false, .stop = stop}, take_temporary));
    sink.folders.push_back(location);
  }
  return found ? absl::OkStatus() : absl::NotFoundError(fmt::format("{}: there is nothing below it to remove", folder));
}

// Links are removed, whatever they lead to, so this does not follow them.
absl::StatusOr<ObjectInfo> LookAtFile(const Location& location, const std::string& path) {
  ObjectInfo object;
  object.key = location.prefix;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return absl::NotFoundError(fmt::format("{}: there is no such file", location.store->Uri(location.prefix)));
  }
  if (std::filesystem::is_regular_file(status)) object.size = std::filesystem::file_size(path, error);
  if (error) object.size = 0;  // removing it will say what is wrong
  return object;
}

absl::Status RemoveUri(Stores& stores, const RmFlags& flags, const std::string& uri, Sink& sink,
                       const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const std::optional<Pattern> pattern,
                   OpenPattern(stores, uri, flags.recursive ? Named::kFolder : Named::kObject, stop));
  if (pattern) {
    return ExpandObjects(
        *pattern, flags.recursive,
        [&](const ObjectInfo& object) { return sink.Take(*pattern->store, object, pattern->folder.size()); }, stop);
  }
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  const bool one_file =
      parsed.scheme == ParsedUri::Scheme::kFile && !IsFolder(parsed, Links::kKeep) && !parsed.path.ends_with('/');
  if (flags.recursive && !one_file) return RemoveBelow(stores, uri, sink, stop);
  ASSIGN_OR_RETURN(const Location location, stores.OpenObject(uri));
  absl::StatusOr<ObjectInfo> object =
      one_file ? LookAtFile(location, parsed.path) : FindObject(location, "remove", stop);
  const std::string path = location.store->Uri(location.prefix);
  if (object.ok() && one_file && IsTemporaryName(std::string_view(path).substr(path.rfind('/') + 1)))
    return sink.TakeTemporary(path, object->size, path);
  // A user who may remove need not be allowed to read.
  if (absl::IsPermissionDenied(object.status()) || absl::IsInvalidArgument(object.status())) {
    object = ObjectInfo{.key = location.prefix};
  }
  RETURN_IF_ERROR(object.status());
  return sink.Take(*location.store, *object, object->key.rfind('/') + 1);
}

absl::Status PrintRemoval(const RmFlags& flags, const BulkReport& report, uint64_t failed, double seconds) {
  FailEach("rm", report.failures, report.failed);
  if (flags.json) {
    return WriteStdout(
        JSON_OF(report.objects, report.bytes, Named("failed", failed + report.failed), seconds, flags.dry_run)
            .Versioned("rm"));
  }
  if (report.objects == 0 && failed + report.failed > 0) return absl::OkStatus();  // what failed was said
  return WriteStdout(fmt::format("{} {}{}\n", flags.dry_run ? "would remove" : "removed",
                                 Counted(report.objects, "object"),
                                 report.bytes > 0 ? ", " + FormatSize(report.bytes) : ""));
}

absl::StatusOr<bool> Rm(const RmFlags& flags) {
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress("removed", ProgressLine::Unit::kItems);
  BulkJob job({.progress = [&](const BulkProgress& now) { progress.Update(now.removed_objects, 0); },
               .stop = interrupt.token()});
  Sink sink(flags, job);
  uint64_t failed = 0;  // arguments that no object was found for
  for (const std::string& uri : flags.uris) {
    const absl::Status status = RemoveUri(stores, flags, uri, sink, interrupt.token());
    if (absl::IsCancelled(status)) break;  // the report says why
    if (absl::IsAborted(status)) return status;
    if (status.ok()) continue;
    progress.Clear();
    Fail("rm", HintAtS3(status, {uri}));
    ++failed;
  }
  BulkReport report = job.Finish().removed;
  report.Add(sink.done);
  progress.Clear();
  const auto wanted = [&](std::string_view name) { return IsWanted(flags.filters, name); };
  for (const Location& folder : sink.folders) {
    TellPassedOver(
        folder,
        {.command = "rm", .done = "removed", .follow_links = false, .wanted = wanted, .stop = interrupt.token()});
  }
  const double seconds = SecondsSince(start);
  RETURN_IF_ERROR(PrintRemoval(flags, report, failed, seconds));
  if (Interrupted()) {
    return absl::CancelledError(
        flags.dry_run ? "interrupted; nothing was removed (--dry-run)"
                      : fmt::format("interrupted; removed {} until then", Counted(report.objects, "object")));
  }
  return failed + report.failed == 0;
}

}  // namespace

void AddRm(Command app) {
  const Command rm = app.AddCommand("rm", "Remove objects; only a whole bucket needs a confirmation");
  auto flags = std::make_shared<RmFlags>();
  rm.Add("uri", &flags->uris, "Objects; patterns with * ** ? [a-z]; with --recursive prefixes and folders").Required();
  rm.AddFlag("-r,--recursive", &flags->recursive, "Remove everything below a prefix or a folder, or in a bucket");
  rm.AddFlag("-y,--yes", &flags->yes, "Remove objects from all of a bucket without a question");
  rm.AddFlag("--dry-run,--dryrun", &flags->dry_run, "Say what would be removed, and remove nothing");
  const auto filters = AddNameFilters(rm);
  rm.AddFlag("--json", &flags->json,
             R"(One JSON object at the end: {"objects", "bytes", "failed", "seconds", "dry_run"}; with --dry-run )"
             R"({"remove", "size"} for each object before)");
  rm.Footer(
      "An object that does not exist is an error, and so is a pattern without a match. The other objects are removed. "
      "'*' stays within one folder, '**' does not. Quote patterns, so that the shell leaves them alone. Folders of the "
      "file system stay, and so do files behind links to folders. Pipes, sockets, devices and broken links stay, too, "
      "and are named. --recursive also removes files that killed commands have left unfinished.\n\n"
      "A question comes first for a whole bucket (--recursive s3://bucket), and for a pattern that begins with a "
      "wildcard ('s3://bucket/*.tmp'). Without a terminal, the command then needs --yes.\n\n" +
      std::string(kFiltersHelp) +
      "\n\n"
      "Examples:\n"
      "  millrace rm s3://bucket/old.tar s3://bucket/older.tar\n"
      "  millrace rm 's3://bucket/train/shard-*.tar' --dry-run\n"
      "  millrace rm 's3://bucket/scratch/**/*.tmp'\n"
      "  millrace rm --recursive s3://bucket/scratch\n"
      "  millrace rm --recursive --yes s3://old-bucket\n"
      "  millrace rm --recursive s3://bucket/run-7 --exclude '*' --include 'logs/*' --dry-run");
  rm.Run([flags, filters] {
    flags->filters = filters();
    if (const absl::Status usage = CheckUsage(*flags); !usage.ok()) return Fail("rm", AsUsage(usage));
    if (const absl::Status confirmed = ConfirmBuckets(*flags); !confirmed.ok()) return Fail("rm", confirmed);
    return ExitStatus("rm", Rm(*flags));
  });
}

}  // namespace millrace::cli
