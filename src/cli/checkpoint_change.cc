#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/process.h"
#include "base/python_child.h"
#include "base/size.h"
#include "checkpoint/difference.h"
#include "cli/checkpoint_commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "store/blocking.h"

namespace millrace::cli {

namespace {

struct CheckpointDiffFlags {
  std::string uri;
  std::string other_uri;
  std::optional<uint64_t> step;
  std::optional<uint64_t> other_step;
  bool json = false;
};

struct CopyCheckpointFlags {
  std::string from;
  std::string to;
  std::optional<uint64_t> step;
  uint64_t keep = 0;
  std::string name;
  std::string python = DefaultPython();
  bool allow_pickle = false;
  bool json = false;
};

struct ExportCheckpointFlags {
  std::string uri;
  std::string file;
  std::optional<uint64_t> step;
  std::vector<std::string> only;
  std::string python = DefaultPython();
  bool json = false;
};

struct CheckpointGcFlags {
  std::string uri;
  uint64_t keep = 0;
  uint64_t keep_every = 0;
  bool claim = false;
  bool dry_run = false;
  bool json = false;
};

constexpr size_t kMaxShownValue = 60;

std::string_view KindText(CheckpointDifference::Kind kind) {
  using Kind = CheckpointDifference::Kind;
  switch (kind) {
    case Kind::kOnlyFirst:
      return "only-first";
    case Kind::kOnlySecond:
      return "only-second";
    case Kind::kType:
      return "type";
    case Kind::kElements:
      return "elements";
    case Kind::kLayout:
      return "layout";
    case Kind::kValue:
      return "value";
  }
  return "";
}

std::string ShortenedValue(const std::string& text) {
  return Printable(text.size() <= kMaxShownValue ? text : text.substr(0, kMaxShownValue) + "...");
}

std::string DifferenceText(const CheckpointDifference& difference) {
  using Kind = CheckpointDifference::Kind;
  const std::string name = Printable(difference.name);
  switch (difference.kind) {
    case Kind::kOnlyFirst:
      return fmt::format("{}: only the first has it: {}\n", name, ShortenedValue(difference.first));
    case Kind::kOnlySecond:
      return fmt::format("{}: only the second has it: {}\n", name, ShortenedValue(difference.second));
    case Kind::kElements:
      return fmt::format("{}: {} elements differ of {}\n", name, difference.elements, difference.first);
    case Kind::kLayout:
      return fmt::format("{}: not compared, since its parts are stored in other ways: {}\n", name, difference.first);
    case Kind::kType:
    case Kind::kValue:
      break;
  }
  return fmt::format("{}: {} and {}\n", name, ShortenedValue(difference.first), ShortenedValue(difference.second));
}

// Returns true if they are equal.
absl::StatusOr<bool> DiffCheckpoints(const CheckpointDiffFlags& flags, const Checkpoints& first,
                                     const Checkpoints& second, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const CheckpointManifest manifest, first.FindManifest(flags.step, stop));
  ASSIGN_OR_RETURN(const CheckpointManifest other_manifest, second.FindManifest(flags.other_step, stop));
  ASSIGN_OR_RETURN(const std::vector<CheckpointDifference> differences,
                   CompareCheckpoints(first, manifest, second, other_manifest, stop));
  for (const CheckpointDifference& difference : differences) {
    RETURN_IF_ERROR(WriteStdout(flags.json ? JSON_OF(difference.name, Named("kind", KindText(difference.kind)),
                                                     difference.first, difference.second, difference.elements)
                                                 .Versioned("checkpoint.diff")
                                           : DifferenceText(difference)));
  }
  return differences.empty();
}

absl::StatusOr<bool> CopyCheckpoint(const CopyCheckpointFlags& flags, const Checkpoints& from, Checkpoints& to,
                                    const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const CheckpointEntry entry, from.Find(flags.step, stop));
  ASSIGN_OR_RETURN(const CheckpointEntry copied,
                   to.Copy(from, entry, {.retention = {.keep = flags.keep}, .stop = stop}));
  const std::string uri = to.Uri() + AttemptFolder(copied.step, copied.attempt);
  RETURN_IF_ERROR(WriteStdout(flags.json ? JSON_OF(copied.step, copied.bytes, uri).Versioned("checkpoint.cp")
                                         : fmt::format("step {} is copied: {} to {}\n", copied.step,
                                                       FormatSize(copied.bytes), Printable(uri))));
  return true;
}

// Returns true if it is the name of a file that torch.save or safetensors has written.
bool IsForeignFile(const std::string& uri) {
  constexpr std::array<absl::string_view, 6> kEndings = {".pt", ".pth", ".bin", ".ckpt", ".pkl", ".safetensors"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&uri](absl::string_view ending) { return absl::EndsWith(uri, ending); });
}

// Returns true if it is a folder of torch.distributed.checkpoint, or of safetensors as of Hugging Face, and none of
// ours.
absl::StatusOr<bool> IsForeignFolder(const Location& from, const std::stop_token& stop) {
  const std::string folder = from.prefix.empty() || absl::EndsWith(from.prefix, "/") ? from.prefix : from.prefix + "/";
  for (const char* const name : {".metadata", "model.safetensors", "model.safetensors.index.json"}) {
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    const absl::Status there = HeadBlocking(*from.store, folder + name).status();
    if (there.ok()) return true;
    if (!absl::IsNotFound(there)) return there;
  }
  return false;
}

// Runs a module of the package, since that takes PyTorch. Returns only if it cannot be started.
int ExecutePython(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  RestoreFileLimit();
  execvp(arguments[0], arguments.data());
  return Fail("checkpoint", absl::NotFoundError(fmt::format(
                                "{} cannot be started ({}); --python names the one that has millrace and torch",
                                Printable(words[0]), std::generic_category().message(errno))));
}

int RunImport(const CopyCheckpointFlags& flags) {
  std::vector<std::string> words = PythonModule(flags.python, "millrace.checkpoint_import");
  words.insert(words.end(), {flags.from, flags.to});
  if (flags.step) words.insert(words.end(), {"--step", std::to_string(*flags.step)});
  if (flags.keep != 0) words.insert(words.end(), {"--keep", std::to_string(flags.keep)});
  if (!flags.name.empty()) words.insert(words.end(), {"--name", flags.name});
  if (flags.allow_pickle) words.emplace_back("--allow-pickle");
  if (flags.json) words.emplace_back("--json");
  return ExecutePython(std::move(words));
}

// Nullopt: it is a checkpoint of ours, or nothing at all. The name alone does not tell: those of the plugin for
// Lightning are folders NAME.ckpt.
std::optional<int> ImportIfForeign(const CopyCheckpointFlags& flags) {
  const bool file = IsForeignFile(flags.from);
  {
    const InterruptStop interrupt;
    Runtime runtime;
    Stores stores(runtime);
    const absl::StatusOr<Location> from = stores.Open(flags.from);
    if (!from.ok()) return std::nullopt;
    const auto catalog = Checkpoints(*from, runtime.memory()).ReadCatalog(interrupt.token());
    if (absl::IsUnavailable(catalog.status()) || absl::IsCancelled(catalog.status()))
      return Fail("checkpoint", HintAtS3(catalog.status(), {flags.from}));
    if (catalog.ok() && *catalog) return std::nullopt;
    if (!file) {
      if (!catalog.ok()) return std::nullopt;
      const absl::StatusOr<bool> foreign = IsForeignFolder(*from, interrupt.token());
      if (!foreign.ok() || !*foreign) return std::nullopt;
    }
  }
  return RunImport(flags);  // no thread of ours is left
}

absl::Status TellRemoved(const CheckpointGcFlags& flags, const std::vector<CheckpointAttempt>& attempts,
                         std::string_view why) {
  std::string text;
  for (const CheckpointAttempt& attempt : attempts) {
    text +=
        flags.json
            ? JSON_OF(attempt.step, attempt.attempt, why, Named("removed", !flags.dry_run)).Versioned("checkpoint.gc")
            : fmt::format("{} {}: {}\n", flags.dry_run ? "would remove" : "removed",
                          AttemptFolder(attempt.step, attempt.attempt), why);
  }
  return WriteStdout(text);
}

absl::StatusOr<bool> CollectGarbage(const CheckpointGcFlags& flags, Checkpoints& checkpoints,
                                    const std::stop_token& stop) {
  ASSIGN_OR_RETURN(std::optional<CheckpointCatalog> catalog, checkpoints.ReadCatalog(stop));
  if (!catalog) return absl::NotFoundError(fmt::format("{}: there is no checkpoint", checkpoints.Uri()));
  const Retention retention{.keep = flags.keep, .keep_every = flags.keep_every};
  std::vector<CheckpointAttempt> superseded;
  if (flags.dry_run) {
    superseded = Supersede(*catalog, retention);
  } else if (flags.keep != 0) {
    ASSIGN_OR_RETURN(superseded, checkpoints.Retain(retention, stop));
  }
  RETURN_IF_ERROR(TellRemoved(flags, superseded, "superseded"));
  if (flags.claim) {
    ASSIGN_OR_RETURN(const uint64_t epoch, checkpoints.ClaimWithoutRemoving(stop));
    if (!flags.json) RETURN_IF_ERROR(WriteStdout(fmt::format("claimed (epoch {})\n", epoch)));
  }
  ASSIGN_OR_RETURN(const std::vector<CheckpointAttempt> left,
                   flags.dry_run ? checkpoints.FindLeft(stop) : checkpoints.RemoveLeft(stop));
  RETURN_IF_ERROR(TellRemoved(flags, left, "left by a killed writer"));
  if (superseded.empty() && left.empty() && !flags.json)
    RETURN_IF_ERROR(WriteStdout(flags.dry_run ? "nothing would be removed\n" : "there was nothing to remove\n"));
  return true;
}

}  // namespace

void AddCheckpointDiff(const Command& checkpoint) {
  const Command diff = checkpoint.AddCommand("diff", "Say which tensors and values of two checkpoints differ");
  auto flags = std::make_shared<CheckpointDiffFlags>();
  diff.Add("uri", &flags->uri, kCheckpointsHelp).Required();
  diff.Add("other", &flags->other_uri, "The same of the second checkpoint; without it, it is one of the first URI");
  diff.Add("--step", &flags->step, "The step of the first checkpoint, instead of the newest");
  diff.Add("--other-step", &flags->other_step, "The step of the second checkpoint, instead of the newest");
  diff.AddFlag("--json", &flags->json,
               R"(One JSON object a difference: {"name", "kind": "only-first", "only-second", "type", "elements", )"
               R"("layout" or "value", "first", "second", "elements"})");
  diff.Footer(
      "Tensors are compared bit by bit, by their names, also if different numbers of ranks have saved them. The exit "
      "status is 0 if nothing differs, and 1 if something does.\n\n"
      "Examples:\n"
      "  millrace checkpoint diff s3://bucket/run-7 --step 100 --other-step 200\n"
      "  millrace checkpoint diff s3://bucket/run-7 s3://bucket/run-8");
  diff.Run([flags] {
    if (flags->other_uri.empty()) {
      if (flags->step == flags->other_step) {
        return Fail("checkpoint", UsageError("with one URI, give two steps: --step 100 --other-step 200"));
      }
      flags->other_uri = flags->uri;
    }
    return WithCheckpoints({flags->uri, flags->other_uri},
                           [&](const OpenCheckpoints& open, const std::stop_token& stop) {
                             return DiffCheckpoints(*flags, *open[0], *open[1], stop);
                           });
  });
}

void AddCheckpointCp(const Command& checkpoint) {
  const Command cp = checkpoint.AddCommand("cp", "Copy a checkpoint, verified, to another URI");
  auto flags = std::make_shared<CopyCheckpointFlags>();
  cp.Add("from", &flags->from, kCheckpointsHelp).Required();
  cp.Add("to", &flags->to, "Where the copy is saved, as one more checkpoint").Required();
  cp.Add("--step", &flags->step, "The checkpoint of this step, instead of the newest");
  cp.Add("--keep", &flags->keep, "How many checkpoints remain at the destination; 0: all");
  cp.Add("--name", &flags->name,
         "For an import of tensors alone: the item of the state that they become (default: model)");
  cp.AddFlag("--allow-pickle", &flags->allow_pickle,
             "For an import: unpickle objects that are neither tensors nor plain data. It can run any code");
  cp.Add("--python", &flags->python, "For an import: the Python that has millrace and torch");
  cp.AddFlag("--json", &flags->json, R"(One JSON object: {"step", "bytes", "uri"})");
  cp.Footer(
      "The copy is whole or not there, as if a training had saved it. The destination is claimed: a training that "
      "saves there commits no more. A copy that was interrupted leaves nothing that counts: begin it again.\n\n"
      "FROM may also be a checkpoint of another program. It is a file of torch.save (.pt, .pth, .bin, .ckpt, .pkl) or "
      ".safetensors, or a folder of torch.distributed.checkpoint or of safetensors. It is imported by "
      "python3 -m millrace.checkpoint_import, as step 0 unless --step says another. It claims, too.\n\n"
      "Examples:\n"
      "  millrace checkpoint cp s3://bucket/run-7 /mnt/models/run-7\n"
      "  millrace checkpoint cp s3://bucket/run-7 s3://other/best --step 1200 --keep 1\n"
      "  millrace checkpoint cp model.pt s3://bucket/run-7 --step 1200");
  cp.Run([flags] {
    for (const std::string& each : {flags->from, flags->to}) {
      if (const absl::Status usage = CheckUri(each); !usage.ok()) return Fail("checkpoint", usage);
    }
    if (const std::optional<int> imported = ImportIfForeign(*flags)) return *imported;
    return WithCheckpoints({flags->from, flags->to}, [&](const OpenCheckpoints& open, const std::stop_token& stop) {
      return CopyCheckpoint(*flags, *open[0], *open[1], stop);
    });
  });
}

void AddCheckpointExport(const Command& checkpoint) {
  const Command command =
      checkpoint.AddCommand("export", "Write a checkpoint to one file that torch.load or safetensors reads");
  auto flags = std::make_shared<ExportCheckpointFlags>();
  command.Add("uri", &flags->uri, kCheckpointsHelp).Required();
  command.Add("file", &flags->file, "The file that is written: FILE.pt, FILE.pth or FILE.safetensors").Required();
  command.Add("--step", &flags->step, "The checkpoint of this step, instead of the newest");
  command.Add("--only NAME", &flags->only, "An item of the state that is wanted, such as model; may be given again")
      .ManyValues();
  command.AddShown("--python", &flags->python, "The Python that has millrace and torch");
  command.AddFlag("--json", &flags->json, R"(One JSON object: {"step", "bytes", "file"})");
  command.Footer(
      "All bytes are verified, and the file is whole or not there. torch.load reads FILE.pt with weights_only=True. "
      "FILE.safetensors holds the tensors alone.\n\n"
      "Examples:\n"
      "  millrace checkpoint export s3://bucket/run-7 out.pt --step 1200");
  command.Run([flags] {
    if (const absl::Status usage = CheckUri(flags->uri); !usage.ok()) return Fail("checkpoint", usage);
    std::vector<std::string> words = PythonModule(flags->python, "millrace.checkpoint_export");
    words.insert(words.end(), {flags->uri, flags->file});
    if (flags->step) words.insert(words.end(), {"--step", std::to_string(*flags->step)});
    for (const std::string& name : flags->only) words.push_back("--only=" + name);
    if (flags->json) words.emplace_back("--json");
    return ExecutePython(std::move(words));
  });
}

void AddCheckpointGc(const Command& checkpoint) {
  const Command gc = checkpoint.AddCommand("gc", "Remove old checkpoints, and files that killed writers have left");
  auto flags = std::make_shared<CheckpointGcFlags>();
  gc.Add("uri", &flags->uri, kCheckpointsHelp).Required();
  gc.Add("--keep", &flags->keep, "How many of the newest checkpoints remain; 0: all");
  gc.Add("--keep-every", &flags->keep_every, "With --keep: besides these, all remain whose step is a multiple of this");
  gc.AddFlag("--claim", &flags->claim,
             "Also remove files that the last writer has left. It can commit no more: make sure that it has ended");
  gc.AddFlag("--dry-run", &flags->dry_run, "Only say what would be removed");
  gc.AddFlag("--json", &flags->json, R"(One JSON object an attempt: {"step", "attempt", "why", "removed"})");
  gc.Footer(
      "Without --claim, a training that saves there is not disturbed. The newest checkpoint always remains.\n\n"
      "Examples:\n"
      "  millrace checkpoint gc s3://bucket/run-7 --keep 3 --keep-every 10000 --dry-run\n"
      "  millrace checkpoint gc /data/run-7 --claim");
  gc.Run([flags] {
    if (flags->keep_every != 0 && flags->keep == 0) {
      return Fail("checkpoint", UsageError("--keep-every needs --keep"));
    }
    if (flags->claim && flags->dry_run) {
      return Fail("checkpoint", UsageError("--claim and --dry-run contradict each other"));
    }
    return WithCheckpointsOf(*flags, CollectGarbage);
  });
}

}  // namespace millrace::cli
