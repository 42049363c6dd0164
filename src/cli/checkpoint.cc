#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/size.h"
#include "checkpoint/checkpoints.h"
#include "cli/checkpoint_commands.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"

namespace millrace::cli {

namespace {

struct CheckpointFlags {
  std::string uri;
  std::optional<uint64_t> step;
  bool all = false;
  bool json = false;
};

// Returns the time for people in their own time zone.
std::string SavedText(uint64_t saved_ms, bool utc) {
  const absl::Time saved = absl::FromUnixMillis(static_cast<int64_t>(saved_ms));
  return utc ? absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", saved, absl::UTCTimeZone())
             : absl::FormatTime("%Y-%m-%d %H:%M:%S", saved, absl::LocalTimeZone());
}

absl::StatusOr<CheckpointCatalog> CatalogOf(const Checkpoints& checkpoints, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(std::optional<CheckpointCatalog> catalog, checkpoints.ReadCatalog(stop));
  if (catalog && !catalog->entries.empty()) return *std::move(catalog);
  return absl::NotFoundError(fmt::format("{}: there is no checkpoint", checkpoints.Uri()));
}

absl::StatusOr<bool> ListCheckpoints(const CheckpointFlags& flags, const Checkpoints& checkpoints,
                                     const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const CheckpointCatalog catalog, CatalogOf(checkpoints, stop));
  std::string text;
  for (const CheckpointEntry& entry : catalog.entries) {
    const bool newest = &entry == catalog.Newest();
    text += flags.json ? JSON_OF(entry.step, entry.attempt, entry.bytes,
                                 Named("saved", SavedText(entry.saved_ms, true)), newest)
                             .Versioned("checkpoint.ls")
                       : fmt::format("{:>12} {} {:>10}{}\n", entry.step, SavedText(entry.saved_ms, false),
                                     FormatSize(entry.bytes), newest ? "  newest" : "");
  }
  RETURN_IF_ERROR(WriteStdout(text));
  return true;
}

absl::StatusOr<bool> ShowCheckpoint(const CheckpointFlags& flags, const Checkpoints& checkpoints,
                                    const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest, checkpoints.FindManifest(flags.step, stop));
  const std::string folder = checkpoints.Uri() + AttemptFolder(manifest.step, manifest.attempt);
  if (flags.json) {
    JsonArray shards;
    for (const CheckpointShard& shard : manifest.shards) {
      shards.Add(JSON_OF(shard.name, shard.bytes, Named("crc32c", fmt::format("{:08x}", shard.crc32c))));
    }
    RETURN_IF_ERROR(WriteStdout(JSON_OF(manifest.step, Named("uri", folder), manifest.epoch,
                                        Named("saved", SavedText(manifest.saved_ms, true)), manifest.host,
                                        Named("bytes", manifest.Bytes()), shards)
                                    .Versioned("checkpoint.show")));
    return true;
  }
  std::string text =
      fmt::format("step {}, saved {} by {} (epoch {})\n{}\n", manifest.step, SavedText(manifest.saved_ms, false),
                  Printable(manifest.host), manifest.epoch, Printable(folder));
  for (const CheckpointShard& shard : manifest.shards) {
    text += fmt::format("{:>10}  {:08x}  {}\n", FormatSize(shard.bytes), shard.crc32c, Printable(shard.name));
  }
  RETURN_IF_ERROR(WriteStdout(text));
  return true;
}

absl::Status TellVerified(const CheckpointFlags& flags, const Checkpoints::Verified& verified) {
  const CheckpointEntry& entry = verified.entry;
  if (flags.json) {
    return WriteStdout(JSON_OF(entry.step, Named("whole", verified.status.ok()), entry.bytes,
                               Named("error", std::string(ToStd(verified.status.message()))))
                           .Versioned("checkpoint.verify"));
  }
  if (verified.status.ok())
    return WriteStdout(fmt::format("step {} is whole: {}\n", entry.step, FormatSize(entry.bytes)));
  const std::string_view hint = flags.all ? "" : "; --all says which steps are whole";
  Fail("checkpoint", absl::Status(verified.status.code(), fmt::format("step {} is damaged: {}{}", entry.step,
                                                                      ToStd(verified.status.message()), hint)));
  return absl::OkStatus();
}

// Returns true if all of them are whole. A running training may remove checkpoints meanwhile; these do not count.
absl::StatusOr<bool> VerifyAll(const CheckpointFlags& flags, const Checkpoints& checkpoints,
                               const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const CheckpointCatalog catalog, CatalogOf(checkpoints, stop));
  bool whole = true;
  for (const CheckpointEntry& entry : catalog.entries) {
    const Checkpoints::Verified verified{entry, checkpoints.Verify(entry, stop)};
    if (absl::IsCancelled(verified.status)) return verified.status;
    if (absl::IsNotFound(verified.status)) {
      ASSIGN_OR_RETURN(const bool committed, checkpoints.IsCommitted(entry, stop));
      if (!committed) continue;
    }
    RETURN_IF_ERROR(TellVerified(flags, verified));
    whole = whole && verified.status.ok();
  }
  return whole;
}

absl::StatusOr<bool> VerifyOne(const CheckpointFlags& flags, const Checkpoints& checkpoints,
                               const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Checkpoints::Verified verified, checkpoints.FindAndVerify(flags.step, stop));
  if (absl::IsCancelled(verified.status)) return verified.status;
  RETURN_IF_ERROR(TellVerified(flags, verified));
  return verified.status.ok();
}

std::shared_ptr<CheckpointFlags> AddUri(const Command& command) {
  auto flags = std::make_shared<CheckpointFlags>();
  command.Add("uri", &flags->uri, kCheckpointsHelp).Required();
  return flags;
}

void AddCheckpointLs(const Command& checkpoint) {
  const Command ls = checkpoint.AddCommand("ls", "List committed checkpoints, the newest last");
  auto flags = AddUri(ls);
  ls.AddFlag("--json", &flags->json,
             R"(One JSON object a checkpoint: {"step", "attempt", "bytes", "saved", "newest"})");
  ls.Footer("Examples:\n  millrace checkpoint ls s3://bucket/run-7");
  ls.Run([flags] { return WithCheckpointsOf(*flags, ListCheckpoints); });
}

void AddCheckpointShow(const Command& checkpoint) {
  const Command show = checkpoint.AddCommand("show", "Show the shards of a checkpoint");
  auto flags = AddUri(show);
  show.Add("--step", &flags->step, "The checkpoint of this step, instead of the newest");
  show.AddFlag("--json", &flags->json,
               R"(One JSON object: {"step", "uri", "epoch", "saved", "host", "bytes", "shards": [{"name", "bytes", )"
               R"("crc32c"}]})");
  show.Footer("Examples:\n  millrace checkpoint show s3://bucket/run-7 --step 1200");
  show.Run([flags] { return WithCheckpointsOf(*flags, ShowCheckpoint); });
}

void AddCheckpointVerify(const Command& checkpoint) {
  const Command verify = checkpoint.AddCommand("verify", "Read a checkpoint and compare every byte with its checksums");
  auto flags = AddUri(verify);
  verify.Add("--step", &flags->step, "The checkpoint of this step, instead of the newest");
  verify.AddFlag("--all", &flags->all, "All checkpoints");
  verify.AddFlag("--json", &flags->json, R"(One JSON object a checkpoint: {"step", "whole", "bytes", "error"})");
  verify.Footer(
      "The exit status is 0 if the newest checkpoint (or the one of --step, or all of them) is whole. It is 1 if it is "
      "damaged, or if there is none.\n\n"
      "Examples:\n"
      "  millrace checkpoint verify s3://bucket/run-7\n"
      "  millrace checkpoint verify /data/run-7 --all --json");
  verify.Run([flags] {
    if (flags->all && flags->step) {
      return Fail("checkpoint", UsageError("--all and --step contradict each other"));
    }
    return WithCheckpointsOf(*flags, flags->all ? VerifyAll : VerifyOne);
  });
}

}  // namespace

int WithCheckpoints(const std::vector<std::string>& uris, const CheckpointAction& act) {
  for (const std::string& uri : uris) {
    if (const absl::Status usage = CheckUri(uri); !usage.ok()) return Fail("checkpoint", usage);
  }
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  OpenCheckpoints open;
  for (const std::string& uri : uris) {
    const absl::StatusOr<Location> location = stores.Open(uri);
    if (!location.ok()) return Fail("checkpoint", location.status());
    open.push_back(std::make_unique<Checkpoints>(*location, runtime.memory()));
  }
  return ExitStatus("checkpoint", HintAtS3(act(open, interrupt.token()), uris));
}

void AddCheckpoint(Command app) {
  const Command checkpoint =
      app.AddCommand("checkpoint", "Show, verify, copy, export and remove checkpoints of millrace.Checkpoints");
  checkpoint.Footer(
      "Examples:\n  millrace checkpoint ls s3://bucket/run-7\n  millrace checkpoint verify s3://bucket/run-7");
  AddCheckpointLs(checkpoint);
  AddCheckpointShow(checkpoint);
  AddCheckpointVerify(checkpoint);
  AddCheckpointDiff(checkpoint);
  AddCheckpointCp(checkpoint);
  AddCheckpointExport(checkpoint);
  AddCheckpointGc(checkpoint);
}

}  // namespace millrace::cli
