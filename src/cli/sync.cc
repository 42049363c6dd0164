#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/expand.h"
#include "cli/key_stream.h"
#include "cli/remove.h"
#include "cli/transfer.h"
#include "cli/usage.h"
#include "store/glob.h"
#include "store/stores.h"
#include "store/uri.h"

namespace millrace::cli {

namespace {

/// --exclude and --include in the order given; the last that matches a name decides.
struct Rule {
  bool include = false;
  std::string pattern;
};

struct SyncFlags {
  std::string source;
  std::string target;
  std::vector<Rule> rules;
  bool remove = false;
  bool dry_run = false;
  bool json = false;
};

bool Wanted(const std::vector<Rule>& rules, std::string_view name) {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    // A pattern without '/' is about the last part of a name, wherever it is.
    const bool whole = rule->pattern.find('/') != std::string::npos;
    if (GlobMatches(rule->pattern, whole ? name : name.substr(name.rfind('/') + 1))) return rule->include;
  }
  return true;
}

// S3 tells times in whole seconds, rounded down; some stores that speak its language tell milliseconds.
bool InSeconds(const ObjectStore& store, const ObjectInfo& object) {
  return IsBucket(store) && object.modified_ms % 1000 == 0;
}

// By the coarser of the two clocks: what was uploaded in the second of its making is not newer than its copy.
bool IsNewer(const ObjectStore& from, const ObjectInfo& source, const ObjectStore& to, const ObjectInfo& target) {
  if (source.modified_ms == 0 || target.modified_ms == 0) return false;  // not known
  const int64_t unit = InSeconds(from, source) || InSeconds(to, target) ? 1000 : 1;
  return source.modified_ms / unit > target.modified_ms / unit;
}

/// Walks both listings side by side and does what makes the target like the source.
class Syncer {
 public:
  Syncer(const SyncFlags& flags, const Location& from, const Location& to, ProgressLine& progress)
      : flags_(flags),
        from_(from),
        to_(to),
        source_(*from.store, from.prefix, /*may_lack=*/false),
        // A folder that is not there yet is made; a bucket is not.
        target_(*to.store, to.prefix, /*may_lack=*/!IsBucket(*to.store)),
        copier_(progress),
        remover_(nullptr) {}

  absl::Status Run() {
    RETURN_IF_ERROR(CheckSource());
    for (;;) {
      ASSIGN_OR_RETURN(const ObjectInfo* const source, Next(source_));
      ASSIGN_OR_RETURN(const ObjectInfo* const target, Next(target_));
      if (Interrupted() || (source == nullptr && target == nullptr)) return absl::OkStatus();
      const int order = source == nullptr   ? 1
                        : target == nullptr ? -1
                                            : source_.Name(*source).compare(target_.Name(*target));
      bool go_on = true;
      if (order > 0) {
        if (flags_.remove) {
          ASSIGN_OR_RETURN(go_on, Remove(*target));
        }
      } else if (const std::string_view why = order < 0 ? "missing" : Difference(*source, *target); !why.empty()) {
        ASSIGN_OR_RETURN(go_on, Copy(*source, why));
      } else {
        ++unchanged;
      }
      if (!go_on) return absl::OkStatus();
      if (order <= 0) source_.Skip();
      if (order >= 0) target_.Skip();
    }
  }

  std::pair<Copier::Report, Remover::Report> Finish() {
    copier_.SetTotal(bytes);
    return {copier_.Finish(), remover_.Finish()};
  }

  uint64_t unchanged = 0;
  uint64_t to_copy = 0;
  uint64_t to_remove = 0;
  uint64_t bytes = 0;

 private:
  // Why an object is copied; "" when it need not be.
  std::string_view Difference(const ObjectInfo& source, const ObjectInfo& target) const {
    if (source.size != target.size) return "size differs";
    return IsNewer(*from_.store, source, *to_.store, target) ? "newer" : "";
  }

  // A prefix with a slip of the pen in it is an empty source: that must not empty the target.
  absl::Status CheckSource() {
    if (!flags_.remove) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ObjectInfo* const source, source_.Peek());
    ASSIGN_OR_RETURN(const ObjectInfo* const target, target_.Peek());
    if (source != nullptr || target == nullptr) return absl::OkStatus();
    return absl::FailedPreconditionError(fmt::format(
        "{0}: there is nothing below it, so that --delete would remove everything in {1}; if that is meant, "
        "use 'millrace rm --recursive {1}'",
        flags_.source, flags_.target));
  }

  absl::StatusOr<const ObjectInfo*> Next(KeyStream& stream) {
    for (;;) {
      ASSIGN_OR_RETURN(const ObjectInfo* const object, stream.Peek());
      if (object == nullptr || Wanted(flags_.rules, stream.Name(*object))) return object;
      stream.Skip();
    }
  }

  absl::StatusOr<bool> Copy(const ObjectInfo& source, std::string_view why) {
    ++to_copy;
    bytes += source.size;
    std::string key = to_.Key(source_.Name(source));
    if (!flags_.dry_run) return copier_.Add({from_.store, source, to_.store, std::move(key)});
    const std::string uri = from_.store->Uri(source.key);
    const std::string copy = to_.store->Uri(key);
    if (!flags_.json) {
      return Say(fmt::format("would copy {} to {} ({})\n", ForTerminal(uri), ForTerminal(copy), why));
    }
    return Say(nlohmann::json{{"copy", uri}, {"to", copy}, {"size", source.size}, {"why", why}});
  }

  absl::StatusOr<bool> Remove(const ObjectInfo& target) {
    ++to_remove;
    if (!flags_.dry_run) return remover_.Add(*to_.store, target);
    const std::string uri = to_.store->Uri(target.key);
    if (!flags_.json) return Say(fmt::format("would remove {}\n", ForTerminal(uri)));
    return Say(nlohmann::json{{"remove", uri}, {"size", target.size}});
  }

  static absl::StatusOr<bool> Say(const std::string& line) {
    RETURN_IF_ERROR(WriteStdout(line));
    return true;
  }
  static absl::StatusOr<bool> Say(const nlohmann::json& line) {
    return Say(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
  }

  const SyncFlags& flags_;
  const Location& from_;
  const Location& to_;
  KeyStream source_;
  KeyStream target_;
  Copier copier_;
  Remover remover_;
};

absl::Status PrintSyncReport(const SyncFlags& flags, const Syncer& syncer, const Copier::Report& copied,
                             const Remover::Report& removed, double seconds) {
  FailEach("sync", copied.failures, copied.failed);
  FailEach("sync", removed.failures, removed.failed);
  const uint64_t copies = flags.dry_run ? syncer.to_copy : copied.objects;
  const uint64_t bytes = flags.dry_run ? syncer.bytes : copied.bytes;
  const uint64_t removals = flags.dry_run ? syncer.to_remove : removed.objects;
  if (flags.json) {
    const nlohmann::json line{{"copied", copies},        {"bytes", bytes},
                              {"removed", removals},     {"failed", copied.failed + removed.failed},
                              {"seconds", seconds},      {"unchanged", syncer.unchanged},
                              {"dry_run", flags.dry_run}};
    return WriteStdout(line.dump() + '\n');
  }
  return WriteStdout(fmt::format("{}copied {}, {}, removed {}, unchanged {}, in {:.1f} s\n",
                                 flags.dry_run ? "would have " : "", Counted(copies, "object"), FormatSize(bytes),
                                 removals, syncer.unchanged, seconds));
}

// Neither may lie in the other: copies would be copied, and what is not in the source removed from the source.
absl::Status CheckApart(const SyncFlags& flags, const Location& from, const Location& to) {
  const std::string source = from.store->Uri(from.prefix);
  const std::string target = to.store->Uri(to.prefix);
  if (!source.starts_with(target) && !target.starts_with(source)) return absl::OkStatus();
  return AsUsage(absl::InvalidArgumentError(
      fmt::format("{} and {} are the same place, or one lies in the other", flags.source, flags.target)));
}

absl::StatusOr<bool> Sync(const SyncFlags& flags) {
  CatchInterrupts();
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(Location from, stores.Open(flags.source));
  ASSIGN_OR_RETURN(Location to, stores.Open(flags.target));
  from.prefix = AsFolder(from.prefix);
  to.prefix = AsFolder(to.prefix);
  RETURN_IF_ERROR(CheckApart(flags, from, to));
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress("copied", ProgressLine::Unit::kBytes);
  Syncer syncer(flags, from, to, progress);
  const absl::Status status = syncer.Run();
  if (absl::IsAborted(status)) return status;
  // What has begun is finished and told, also when a listing failed.
  const auto [copied, removed] = syncer.Finish();
  progress.Clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RETURN_IF_ERROR(PrintSyncReport(flags, syncer, copied, removed, seconds));
  RETURN_IF_ERROR(status);
  if (Interrupted()) {
    return absl::CancelledError(fmt::format("interrupted; copied {} until then; the same command goes on with the rest",
                                            Counted(copied.objects, "object")));
  }
  return copied.failed == 0 && removed.failed == 0;
}

constexpr const char* kSyncFooter =
    R"(Copies what the target lacks, and what differs in size or is newer in the source, as 'aws s3 sync' does. S3 keeps
the time of an object in whole seconds, so with a bucket on either side whole seconds are compared: what is replaced by
something of the same size in the second of its upload is not seen. Each object appears whole or not at all; after an
interruption the same command goes on with the rest. Between buckets of one store the store itself copies, with type and
metadata.

Patterns: * stays within one folder, ** does not, also ? and [a-z]. One without '/' is about the last part of a name,
wherever it is; one with '/' about the whole path below SRC. Of several that match, the last counts; what is excluded is
not removed by --delete either.

Examples:
  millrace sync /data/train s3://bucket/train
  millrace sync s3://bucket/train /data/train --delete --dry-run
  millrace sync s3://bucket/a s3://other/a --exclude '*.tmp' --exclude 'logs/**'
  millrace sync /data/train s3://bucket/train --exclude '*' --include '*.tar')";

}  // namespace

void AddSync(CLI::App& app, Action* run) {
  CLI::App* sync =
      app.add_subcommand("sync", "Make one place like another: copy what is missing, newer or of other size");
  auto flags = std::make_shared<SyncFlags>();
  sync->add_option("source", flags->source, "A prefix or folder")->required();
  sync->add_option("target", flags->target, "A prefix or folder")->required();
  sync->add_flag("--delete", flags->remove, "Remove from the target what the source does not have");
  sync->add_flag("--dry-run", flags->dry_run, "Say what would be done, and do nothing");
  // CLI11 keeps the order of options, and of the values of each.
  auto excluded = std::make_shared<std::vector<std::string>>();
  auto included = std::make_shared<std::vector<std::string>>();
  CLI::Option* exclude = sync->add_option("--exclude", *excluded, "Leave out what matches; repeatable");
  CLI::Option* include = sync->add_option("--include", *included,
                                          "Take what matches although an --exclude before it does, too; repeatable");
  for (CLI::Option* option : {exclude, include}) option->type_name("GLOB")->allow_extra_args(false);
  sync->add_flag("--json", flags->json,
                 R"(One JSON object at the end: {"copied", "bytes", "removed", "unchanged", "failed", "seconds", )"
                 R"("dry_run"}; with --dry-run a line for each object before)");
  sync->footer(kSyncFooter);
  sync->callback([=] {
    size_t next_excluded = 0;
    size_t next_included = 0;
    for (const CLI::Option* option : sync->parse_order()) {
      if (option == exclude) flags->rules.push_back({false, excluded->at(next_excluded++)});
      if (option == include) flags->rules.push_back({true, included->at(next_included++)});
    }
    *run = [flags] {
      for (const std::string& uri : {flags->source, flags->target}) {
        if (const absl::Status usage = ParseUri(uri).status(); !usage.ok()) {
          Fail("sync", usage);
          return 2;
        }
      }
      const absl::StatusOr<bool> done = Sync(*flags);
      if (!done.ok()) return Fail("sync", HintAtS3(done.status(), {flags->source}));
      return *done ? 0 : 1;
    };
  });
}

}  // namespace millrace::cli
