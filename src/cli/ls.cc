#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/s3_account.h"
#include "cli/usage.h"
#include "s3/xml.h"
#include "store/blocking.h"
#include "store/stores.h"
#include "store/uri.h"
#include "transfer/key_pattern.h"
#include "transfer/other_files.h"

namespace millrace::cli {

namespace {

struct LsFlags {
  std::string uri;
  bool recursive = false;
  bool all = false;
  bool human = false;
  bool summarize = false;
  bool json = false;
};

// kNo means a temporary file, which may never become an object.
enum class Finished { kYes, kNo };

std::string ObjectLine(const LsFlags& flags, const ObjectInfo& object, size_t hidden,
                       Finished finished = Finished::kYes) {
  const absl::Time modified = absl::FromUnixMillis(object.modified_ms);
  if (flags.json) {
    const Json time = object.modified_ms == 0 ? Json(nullptr)
                                              : absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", modified, absl::UTCTimeZone());
    if (finished == Finished::kNo) {
      return JSON_OF(object.key, object.size, Named("modified", time), Named("temporary", true)).Versioned("ls");
    }
    return JSON_OF(object.key, object.size, object.etag, Named("modified", time)).Versioned("ls");
  }
  const std::string size = flags.human ? FormatSize(object.size) : fmt::format("{}", object.size);
  return fmt::format("{} {:>10} {}\n", ListedTime(object.modified_ms), size,
                     Printable(std::string_view(object.key).substr(hidden)));
}

std::string PrefixLine(const LsFlags& flags, const std::string& prefix, size_t hidden) {
  if (flags.json) return JsonObject{{"prefix", prefix}}.Versioned("ls");
  return fmt::format("{:>30} {}\n", "PRE", Printable(std::string_view(prefix).substr(hidden)));
}

// Objects and prefixes of a page, each in order, merged into one order.
std::string PageText(const LsFlags& flags, const ListPage& page, size_t hidden) {
  std::string text;
  auto prefix = page.common_prefixes.begin();
  for (const ObjectInfo& object : page.objects) {
    for (; prefix != page.common_prefixes.end() && *prefix < object.key; ++prefix)
      text += PrefixLine(flags, *prefix, hidden);
    text += ObjectLine(flags, object, hidden);
  }
  for (; prefix != page.common_prefixes.end(); ++prefix) text += PrefixLine(flags, *prefix, hidden);
  return text;
}

/// Prints pages, and counts what it prints.
class PagePrinter {
 public:
  explicit PagePrinter(const LsFlags& flags) : flags_(flags) {}

  absl::Status Print(const ListPage& page, size_t hidden) {
    found_ = found_ || !page.objects.empty() || !page.common_prefixes.empty();
    objects_ += page.objects.size();
    for (const ObjectInfo& object : page.objects) bytes_ += object.size;
    return WriteStdout(PageText(flags_, page, hidden));
  }

  absl::Status PrintTemporary(const ObjectInfo& object, size_t hidden) {
    found_ = true;
    ++objects_;
    bytes_ += object.size;
    return WriteStdout(ObjectLine(flags_, object, hidden, Finished::kNo));
  }

  /// Prints the summary of `aws s3 ls --summarize`.
  absl::Status PrintSummary() const {
    if (!flags_.summarize) return absl::OkStatus();
    if (flags_.json) return WriteStdout(JsonObject{{"objects", objects_}, {"bytes", bytes_}}.Versioned("ls"));
    return WriteStdout(fmt::format("\nTotal Objects: {}\n   Total Size: {}\n", objects_,
                                   flags_.human ? FormatSize(bytes_) : fmt::format("{}", bytes_)));
  }

  bool found() const { return found_; }

 private:
  const LsFlags& flags_;
  bool found_ = false;
  uint64_t objects_ = 0;
  uint64_t bytes_ = 0;
};

absl::StatusOr<bool> IsLocalFile(const std::string& uri) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  std::error_code ignored;  // what cannot be looked at is reported by the listing
  return parsed.scheme == ParsedUri::Scheme::kFile && std::filesystem::is_regular_file(parsed.path, ignored);
}

// Whole keys, since those that match may lie in many folders.
absl::Status LsPattern(const LsFlags& flags, const Pattern& pattern, PagePrinter& printer) {
  RETURN_IF_ERROR(Expand(pattern, {.folders = !flags.recursive, .below = flags.recursive},
                         [&](const ListPage& page) { return printer.Print(page, 0); }));
  return printer.found() ? absl::OkStatus() : NothingMatches(pattern);
}

absl::Status LsTemporary(const LsFlags& flags, const Location& location, size_t hidden, PagePrinter& printer) {
  const std::string& prefix = location.prefix;
  const bool folder = location.store->traits().is_folder();
  if (!folder || !(prefix.empty() || prefix.ends_with('/'))) return absl::OkStatus();
  return ForEachOtherFile(location.store->Uri(prefix), {.recursive = flags.recursive, .stop = {}},
                          [&](const OtherFile& file) {
                            if (file.kind != OtherFile::Kind::kTemporary) return absl::OkStatus();
                            ObjectInfo object;
                            object.key = prefix + file.name;
                            object.size = file.size;
                            object.modified_ms = file.modified_ms;
                            return printer.PrintTemporary(object, hidden);
                          });
}

absl::Status LsUri(const LsFlags& flags, PagePrinter& printer) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const bool file, IsLocalFile(flags.uri));
  if (file) {
    ASSIGN_OR_RETURN(const Location location, stores.OpenObject(flags.uri));
    ASSIGN_OR_RETURN(const ObjectInfo object, HeadBlocking(*location.store, location.prefix));
    ListPage page;
    page.objects.push_back(object);
    return printer.Print(page, 0);
  }
  ASSIGN_OR_RETURN(const std::optional<Pattern> pattern, OpenPattern(stores, flags.uri, Named::kPrefix));
  if (pattern) return LsPattern(flags, *pattern, printer);
  ASSIGN_OR_RETURN(const Location location, stores.Open(flags.uri));
  // Names are shown as `aws s3 ls` does: those below the last '/' of the prefix, whole keys when recursive.
  const size_t hidden = flags.recursive ? 0 : location.prefix.rfind('/') + 1;
  const std::string delimiter = flags.recursive ? "" : "/";
  RETURN_IF_ERROR(ForEachPage(*location.store, location.prefix, delimiter,
                              [&](const ListPage& page) { return printer.Print(page, hidden); }));
  if (flags.all) RETURN_IF_ERROR(LsTemporary(flags, location, hidden, printer));
  if (printer.found() || location.prefix.empty()) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("{}: no key begins so", location.store->Uri(location.prefix)));
}

absl::Status LsBuckets(const LsFlags& flags) {
  if (flags.recursive || flags.summarize || flags.human) {
    return UsageError(
        "--recursive, --summarize and --human want a bucket or folder; without one the buckets are listed");
  }
  Runtime runtime;
  ASSIGN_OR_RETURN(const std::unique_ptr<S3Client> client, ConnectS3(runtime));
  return ForEachBucketPage(*client, [&](const BucketPage& page) {
    std::string text;
    for (const BucketEntry& bucket : page.buckets) {
      const Json created = bucket.created_ms == 0 ? Json(nullptr) : Json(FormatXmlTime(bucket.created_ms));
      text += flags.json ? JsonObject{{"bucket", bucket.name}, {"created", created}}.Versioned("ls")
                         : fmt::format("{} {}\n", ListedTime(bucket.created_ms), Printable(bucket.name));
    }
    return WriteStdout(text);
  });
}

absl::Status Ls(const LsFlags& flags) {
  if (flags.uri.empty() || flags.uri == "s3://") return LsBuckets(flags);
  PagePrinter printer(flags);
  RETURN_IF_ERROR(LsUri(flags, printer));
  return printer.PrintSummary();
}

}  // namespace

void AddLs(Command app) {
  const Command ls = app.AddCommand("ls", "List buckets, or the objects of a bucket or folder");
  auto flags = std::make_shared<LsFlags>();
  ls.Add("uri", &flags->uri,
         "A bucket with a prefix, a folder, one file, or a pattern with * ** ? [a-z]; without it, the buckets");
  ls.AddFlag("-r,--recursive", &flags->recursive, "List all keys below the prefix, instead of one level");
  ls.AddFlag("--all", &flags->all,
             "Also list the temporary files of a folder, those of killed writers and of others, at the end");
  ls.AddFlag("--human,--human-readable", &flags->human, "Print sizes like 1.5 MiB");
  ls.AddFlag("--summarize", &flags->summarize, "Add how many objects were listed, and their size");
  ls.AddFlag("--json", &flags->json,
             R"(One JSON object a line: {"key", "size", "etag", "modified"} or {"prefix"}; with --all )"
             R"({"key", "size", "modified", "temporary"}, too; of buckets )"
             R"({"bucket", "created"}; with --summarize {"objects", "bytes"} at the end)");
  ls.Footer(
      "As with 'aws s3 ls', a prefix matches every key that begins with it: end it with '/' to see inside.\n\n"
      "Examples:\n"
      "  millrace ls\n"
      "  millrace ls s3://bucket/train/\n"
      "  millrace ls s3://bucket --recursive --human --summarize\n"
      "  millrace ls 's3://bucket/*/shard-00000[0-4].tar'\n"
      "  millrace ls /data/train --recursive --json | jq -r .key");
  ls.Run([flags] { return ExitStatus("ls", HintAtS3(Ls(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
