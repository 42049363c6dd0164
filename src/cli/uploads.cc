#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/counted.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/s3_account.h"
#include "s3/xml.h"
#include "store/completion.h"
#include "store/uri.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

struct UploadsFlags {
  std::string uri;
  std::optional<std::string> id;
  std::optional<std::string> older_than;
  bool dry_run = false;
  bool json = false;
};

/// Represents the uploads that the command line means.
struct UploadChoice {
  std::string bucket;
  std::string prefix;  // the key of one object, or what lies below it
  std::optional<std::string> id;
  absl::Time begun_before = absl::InfiniteFuture();

  // Returns true for uploads of the object of that name, or of one below it, as `rm --recursive` does: "run-1" does not
  // include "run-10".
  bool Has(const UnfinishedUpload& upload) const {
    const bool below = upload.key == prefix || upload.key.starts_with(AsFolder(prefix));
    if (!below || (id && upload.upload_id != *id)) return false;
    if (begun_before == absl::InfiniteFuture()) return true;
    // One whose age the store does not tell may be new.
    return upload.begun_ms != 0 && absl::FromUnixMillis(upload.begun_ms) <= begun_before;
  }
};

constexpr size_t kAbortsAtOnce = 32;
constexpr size_t kMaxGathered = 100'000;

/// "90s", "30m", "12h", "7d".
absl::StatusOr<absl::Duration> TakeAge(const std::string& text) {
  constexpr uint64_t kMaxAge = 1'000'000;
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string unit(end, text.data() + text.size());
  const std::map<std::string, absl::Duration> units = {
      {"s", absl::Seconds(1)}, {"m", absl::Minutes(1)}, {"h", absl::Hours(1)}, {"d", absl::Hours(24)}};
  const auto found = units.find(unit);
  if (error == std::errc() && found != units.end() && count <= kMaxAge) {
    return static_cast<int64_t>(count) * found->second;
  }
  return UsageError("--older-than '{}' is not an age; write 12h or 7d, with s, m, h or d for its unit", text);
}

absl::StatusOr<UploadChoice> Choose(const UploadsFlags& flags) {
  ASSIGN_OR_RETURN(const ParsedUri uri, AsUsage(ParseUri(flags.uri)));
  if (uri.scheme != ParsedUri::Scheme::kS3) {
    return UsageError("'{}' is not on S3, and only S3 keeps unfinished uploads; write s3://bucket/prefix", flags.uri);
  }
  UploadChoice choice{.bucket = uri.store, .prefix = uri.path, .id = flags.id};
  if (!flags.older_than) return choice;
  ASSIGN_OR_RETURN(const absl::Duration age, TakeAge(*flags.older_than));
  // The store's clock may be ahead of this machine's; 0 means all.
  if (age > absl::ZeroDuration()) choice.begun_before = absl::Now() - age;
  return choice;
}

JsonObject ToJson(const UnfinishedUpload& upload) {
  const Json begun = upload.begun_ms == 0 ? Json(nullptr) : Json(FormatXmlTime(upload.begun_ms));
  return JsonObject{{"key", upload.key}, {"upload_id", upload.upload_id}, {"begun", begun}};
}

absl::Status LsUploads(const UploadsFlags& flags) {
  ASSIGN_OR_RETURN(const UploadChoice choice, Choose(flags));
  Runtime runtime;
  ASSIGN_OR_RETURN(const std::unique_ptr<S3Client> client, ConnectS3(runtime));
  return ForEachUpload(*client, choice.bucket, choice.prefix, [&](const UnfinishedUpload& upload) {
    if (!choice.Has(upload)) return absl::OkStatus();
    if (flags.json) return WriteStdout(ToJson(upload).Versioned("uploads.ls"));
    return WriteStdout(
        fmt::format("{} {} {}\n", ListedTime(upload.begun_ms), Printable(upload.upload_id), Printable(upload.key)));
  });
}

struct Aborted {
  uint64_t uploads = 0;
  uint64_t failed = 0;
  std::map<std::string, absl::Status> failures;  // by URI
};

void AbortAll(S3Client& client, const std::string& bucket, const std::vector<UnfinishedUpload>& uploads,
              Aborted* aborted) {
  for (size_t begin = 0; begin < uploads.size(); begin += kAbortsAtOnce) {
    const size_t end = std::min(uploads.size(), begin + kAbortsAtOnce);
    std::vector<Completion<absl::Status>> completions(end - begin);
    for (size_t i = begin; i < end; ++i) {
      client.AbortMultipart(bucket, uploads[i].key, uploads[i].upload_id, completions[i - begin].Callback());
    }
    for (size_t i = begin; i < end; ++i) {
      const absl::Status status = completions[i - begin].Wait();
      status.ok() ? ++aborted->uploads : ++aborted->failed;
      if (!status.ok()) aborted->failures.emplace(fmt::format("s3://{}/{}", bucket, uploads[i].key), status);
    }
  }
}

absl::Status Announce(const UploadsFlags& flags, const std::string& bucket, const UnfinishedUpload& upload) {
  if (flags.json) return WriteStdout(ToJson(upload).Versioned("uploads.abort"));
  return WriteStdout(fmt::format(
      "would abort the upload of {}, begun {}: {}\n", Printable(fmt::format("s3://{}/{}", bucket, upload.key)),
      upload.begun_ms == 0 ? "at an unknown time" : ListedTime(upload.begun_ms), Printable(upload.upload_id)));
}

// Gathers before it aborts, since the place of the next page is that of an upload, which must still be there.
absl::Status AbortChosen(S3Client& client, const UploadsFlags& flags, const UploadChoice& choice, Aborted* aborted) {
  for (bool more = true; more && aborted->failed == 0;) {
    std::vector<UnfinishedUpload> gathered;
    more = false;
    const absl::Status listed =
        ForEachUpload(client, choice.bucket, choice.prefix, [&](const UnfinishedUpload& upload) {
          if (!choice.Has(upload)) return absl::OkStatus();
          if (flags.dry_run) {
            ++aborted->uploads;
            return Announce(flags, choice.bucket, upload);
          }
          if (gathered.size() == kMaxGathered) {
            more = true;
            return absl::CancelledError("enough for this round");
          }
          gathered.push_back(upload);
          return absl::OkStatus();
        });
    if (!more) RETURN_IF_ERROR(listed);
    AbortAll(client, choice.bucket, gathered, aborted);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> AbortUploads(const UploadsFlags& flags) {
  if (flags.id.has_value() == flags.older_than.has_value()) {
    return UsageError(
        "say which uploads: --older-than AGE (7d; 0s: all, also those that programs are writing now), or --id ID");
  }
  ASSIGN_OR_RETURN(const UploadChoice choice, Choose(flags));
  Runtime runtime;
  ASSIGN_OR_RETURN(const std::unique_ptr<S3Client> client, ConnectS3(runtime));
  Aborted aborted;
  RETURN_IF_ERROR(AbortChosen(*client, flags, choice, &aborted));
  if (flags.id && aborted.uploads + aborted.failed == 0) {
    return absl::NotFoundError(
        fmt::format("{}: there is no unfinished upload '{}'; `millrace uploads ls {}` lists them", flags.uri, *flags.id,
                    flags.uri));
  }
  FailEach("uploads", aborted.failures, aborted.failed);
  if (flags.json) {
    RETURN_IF_ERROR(WriteStdout(
        JSON_OF(Named("aborted", aborted.uploads), aborted.failed, flags.dry_run).Versioned("uploads.abort")));
  } else {
    RETURN_IF_ERROR(WriteStdout(
        fmt::format("{} {}\n", flags.dry_run ? "would abort" : "aborted", Counted(aborted.uploads, "upload"))));
  }
  return aborted.failed == 0;
}

void AddUploadsLs(Command uploads) {
  const Command ls = uploads.AddCommand("ls", "List unfinished uploads");
  auto flags = std::make_shared<UploadsFlags>();
  ls.Add("uri", &flags->uri, "s3://bucket, a prefix or an object").Required();
  ls.Add("--older-than AGE", &flags->older_than, "Uploads that were begun at least this time ago: 90s, 30m, 12h, 7d");
  ls.AddFlag("--json", &flags->json, R"(One JSON object a line: {"key", "upload_id", "begun"})");
  ls.Footer(
      "Prints when each upload was begun, its id and its key.\n\n"
      "Examples:\n"
      "  millrace uploads ls s3://bucket\n"
      "  millrace uploads ls s3://bucket/train --older-than 1d --json");
  ls.Run([flags] { return ExitStatus("uploads", LsUploads(*flags)); });
}

void AddUploadsAbort(Command uploads) {
  const Command abort = uploads.AddCommand("abort", "Abort unfinished uploads, and remove their parts");
  auto flags = std::make_shared<UploadsFlags>();
  abort.Add("uri", &flags->uri, "s3://bucket, a prefix or an object").Required();
  abort.Add("--older-than AGE", &flags->older_than,
            "Uploads that were begun at least this time ago: 90s, 30m, 12h, 7d; 0s: all");
  abort.Add("--id ID", &flags->id, "The upload with this id");
  abort.AddFlag("--dry-run,--dryrun", &flags->dry_run, "Say what would be aborted, and abort nothing");
  abort.AddFlag("--json", &flags->json,
                R"(One JSON object at the end: {"aborted", "failed", "dry_run"}; with --dry-run {"key", "upload_id", )"
                R"("begun"} for each upload before)");
  abort.Footer(
      "A program that is writing such an upload fails, so choose an age that no upload of yours reaches. Objects "
      "that exist stay as they are. An upload is of the object that the URI names, or of one below it.\n\n"
      "Examples:\n"
      "  millrace uploads abort s3://bucket --older-than 7d --dry-run\n"
      "  millrace uploads abort s3://bucket/train --older-than 1d\n"
      "  millrace uploads abort s3://bucket/train/big.tar --id 2~abc");
  abort.Run([flags] { return ExitStatus("uploads", AbortUploads(*flags)); });
}

}  // namespace

void AddUploads(Command app) {
  const Command uploads = app.AddCommand("uploads", "List and abort unfinished uploads, whose parts are paid for");
  uploads.Footer(
      "Large objects are uploaded in parts. If a program is killed meanwhile, its parts stay in the bucket, where "
      "no listing of objects shows them.\n\n"
      "Examples:\n"
      "  millrace uploads ls s3://bucket\n"
      "  millrace uploads abort s3://bucket --older-than 7d --dry-run");
  AddUploadsLs(uploads);
  AddUploadsAbort(uploads);
}

}  // namespace millrace::cli
