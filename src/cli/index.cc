#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/counted.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/skipped_text.h"
#include "cli/usage.h"
#include "dataset/dataset.h"
#include "dataset/index_file.h"
#include "dataset/index_share.h"
#include "shard/token_format.h"

namespace millrace::cli {

namespace {

struct IndexFlags {
  double outage_limit = kOutageLimitSeconds;
  std::string uri;
  std::string output;
  std::optional<std::string> tokens;
  OpenOptions open{.rebuild = true};
  bool no_csv_quotes = false;
  std::string memory;
  std::string part;
  bool full = false;
  bool json = false;
};

absl::StatusOr<OpenOptions> ToOptions(const IndexFlags& flags) {
  OpenOptions options = flags.open;
  options.columns.quotes = flags.no_csv_quotes ? CsvQuotes::kText : CsvQuotes::kUsual;
  options.reuse = !flags.full;
  if (!flags.tokens) return options;
  const absl::StatusOr<TokenArrays> tokens = ParseTokenArrays(*flags.tokens);
  if (!tokens.ok()) return AsUsage(Annotate(tokens.status(), "--tokens"));
  options.tokens = *tokens;
  return options;
}

// Bounds the number of machines that share the work of one index.
constexpr uint64_t kMaxIndexParts = 1'000'000;

struct IndexResult {
  IndexSummary summary;
  BuildReport report;
  std::string place;     // "": the index is not complete, and the others are of this part
  uint64_t missing = 0;  // shards, for it to be complete
};

absl::StatusOr<IndexResult> BuildToFile(Runtime& runtime, Stores& stores, const IndexFlags& flags,
                                        const OpenOptions& options) {
  ASSIGN_OR_RETURN(const Location output, stores.OpenObject(flags.output));
  PutOptions put;
  put.stop = options.stop;
  ASSIGN_OR_RETURN(BuiltIndex built,
                   BuildIndexFile(
                       runtime, stores, flags.uri, [&] { return output.store->Write(output.prefix, put); }, options));
  return IndexResult{.summary = std::move(built.summary),
                     .report = std::move(built.report),
                     .place = output.store->Uri(output.prefix)};
}

absl::StatusOr<IndexResult> BuildInPlace(Runtime& runtime, Stores& stores, const IndexFlags& flags,
                                         const OpenOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Dataset::Open(runtime, stores, flags.uri, options));
  const Index& index = dataset->index();
  return IndexResult{.summary = {.samples = index.size(),
                                 .samples_without_crc = index.samples_without_crc(),
                                 .objects = index.objects() - (dataset->is_manifest() ? 1 : 0),
                                 .span_bytes = index.total_bytes(),
                                 .index_bytes = index.file_bytes(),
                                 .field_names = index.field_names()},
                     .report = dataset->built().value_or(BuildReport()),
                     .place = dataset->index_uri()};
}

// The part that ends last makes the index of all parts.
absl::StatusOr<IndexResult> BuildPart(Runtime& runtime, Stores& stores, const IndexFlags& flags,
                                      const OpenOptions& options) {
  ASSIGN_OR_RETURN(const PartOfWork work, TakePart(flags.part, kMaxIndexParts));
  OpenOptions part = options;
  part.share = {.part = work.part, .parts = work.parts};
  ASSIGN_OR_RETURN(IndexShareReport share, BuildIndexShare(runtime, stores, flags.uri, part));
  if (share.missing > 0) {
    return IndexResult{
        .summary = std::move(share.summary), .report = std::move(share.report), .place = "", .missing = share.missing};
  }
  OpenOptions complete = options;
  complete.rebuild = share.to_merge;
  ASSIGN_OR_RETURN(IndexResult result, BuildInPlace(runtime, stores, flags, complete));
  if (!share.report.damaged.empty() && result.report.damaged.empty()) result.report.damaged = share.report.damaged;
  return result;
}

absl::Status CheckPart(const IndexFlags& flags) {
  if (flags.part.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(TakePart(flags.part, kMaxIndexParts).status());
  if (flags.full) return UsageError("--part keeps what other parts have read, and --full reads everything: give one");
  if (!flags.output.empty()) return UsageError("--part completes the index beside the data: leave out --output");
  if (flags.tokens) return UsageError("--part divides shards, and --tokens cuts arrays: give one");
  return absl::OkStatus();
}

void Warn(const BuildReport& report) {
  constexpr size_t kMaxShown = 10;
  if (report.damaged.empty()) return;
  const bool one = report.damaged.size() == 1;
  PrintError("millrace index: warning: {} {} damaged; {} samples from there on were left out:\n",
             Counted(report.damaged.size(), "shard"), one ? "is" : "are", one ? "its" : "their");
  for (size_t i = 0; i < std::min(kMaxShown, report.damaged.size()); ++i) {
    const DamagedShard& shard = report.damaged[i];
    const std::string place = shard.offset ? fmt::format("offset {}: ", *shard.offset) : "";
    PrintError("  {}: {}{} ({} before that)\n", Printable(shard.key), place, Printable(shard.why),
               Counted(shard.samples, "sample"));
  }
  if (report.damaged.size() > kMaxShown) PrintError("  and others; --json lists all\n");
}

std::string ToJson(const IndexResult& result, double seconds) {
  const IndexSummary& summary = result.summary;
  JsonArray damaged;
  for (const DamagedShard& shard : result.report.damaged) {
    const Json offset = shard.offset ? Json(*shard.offset) : Json(nullptr);
    damaged.Add(JsonObject{{"object", shard.key}, {"offset", offset}, {"why", shard.why}, {"samples", shard.samples}});
  }
  const SkippedMembers& members = result.report.skipped_members;
  const JsonObject line =
      JSON_OF(summary.samples, Named("samples_without_checksum", summary.samples_without_crc), summary.objects,
              result.report.reused_objects, result.report.outlined_objects, Named("bytes", summary.span_bytes),
              Named("fields", summary.field_names), Named("index", result.place), summary.index_bytes, seconds,
              Named("complete", result.missing == 0), Named("missing_objects", result.missing), damaged,
              result.report.warnings, Named("skipped", SkippedJson(result.report.skipped)),
              Named("skipped_members", JsonObject{{"links", members.links}, {"unnamed", members.unnamed}}));
  return line.Versioned("index");
}

std::string ToText(const IndexResult& result, const IndexFlags& flags, double seconds) {
  const IndexSummary& summary = result.summary;
  std::string text =
      fmt::format("{} in {}, {}, fields: {}\n", Counted(summary.samples, "sample"), Counted(summary.objects, "object"),
                  FormatSize(summary.span_bytes), Printable(fmt::format("{}", fmt::join(summary.field_names, ", "))));
  if (result.report.reused_objects > 0) {
    text += fmt::format("{} of {} were unchanged and not read again\n", result.report.reused_objects,
                        Counted(summary.objects, "object"));
  }
  if (const uint64_t outlined = result.report.outlined_objects; outlined > 0) {
    text += fmt::format(
        "{} not read, since other programs have noted where {} samples lie; {} samples have no checksum in the index: "
        "--checksums reads them\n",
        Counted(outlined, "shard") + (outlined == 1 ? " was" : " were"), outlined == 1 ? "its" : "their",
        outlined == 1 ? "its" : "their");
  } else if (summary.samples_without_crc > 0) {
    text += fmt::format(
        "{} not read, and {} no checksum in the index: the store's are used, if it keeps some\n",
        Counted(summary.samples_without_crc, "sample") + (summary.samples_without_crc == 1 ? " was" : " were"),
        summary.samples_without_crc == 1 ? "has" : "have");
  }
  text += SkippedText(result.report.skipped);
  if (const SkippedMembers& members = result.report.skipped_members; members.unnamed > 0) {
    text += fmt::format("{} of tar shards {} passed over, since their names make no sample; the first: {}\n",
                        Counted(members.unnamed, "file"), members.unnamed == 1 ? "was" : "were",
                        Printable(members.first_unnamed));
  }
  if (result.missing > 0) {
    return text + fmt::format(
                      "indexed in {:.1f} s; this was part {}; {} of other parts {} missing, and the last part "
                      "to end completes the index\n",
                      seconds, flags.part, Counted(result.missing, "shard"), result.missing == 1 ? "is" : "are");
  }
  return text + fmt::format("{}: {}, {:.1f} bytes a sample, built in {:.1f} s\n", result.place,
                            FormatSize(summary.index_bytes),
                            static_cast<double>(summary.index_bytes) / static_cast<double>(summary.samples), seconds);
}

absl::Status RunIndex(const IndexFlags& flags) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds outage_limit, TakeOutageLimit(flags.outage_limit));
  RETURN_IF_ERROR(CheckUri(flags.uri));
  if (!flags.output.empty()) RETURN_IF_ERROR(CheckObjectUri(flags.output));
  RETURN_IF_ERROR(CheckPart(flags));
  ASSIGN_OR_RETURN(OpenOptions options, ToOptions(flags));
  RuntimeOptions limits;
  RETURN_IF_ERROR(TakeSize("--memory", flags.memory, &limits.memory_bytes));
  InterruptStop interrupt;
  Runtime runtime(limits);
  Stores stores(runtime);
  stores.SetOutageLimit(outage_limit);
  const auto start = std::chrono::steady_clock::now();
  IndexResult result;
  {
    ProgressLine line("indexing", ProgressLine::Unit::kBytes);
    options.progress = [&line](uint64_t done, uint64_t total) { line.Update(done, total); };
    options.stop = interrupt.token();
    auto build = flags.output.empty() ? BuildInPlace : BuildToFile;
    if (!flags.part.empty()) build = BuildPart;
    ASSIGN_OR_RETURN(result, build(runtime, stores, flags, options));
  }
  const double seconds = SecondsSince(start);
  Warn(result.report);
  return WriteStdout(flags.json ? ToJson(result, seconds) : ToText(result, flags, seconds));
}

}  // namespace

void AddIndex(Command app) {
  const Command index = app.AddCommand("index", "Build the index of a data set, or bring it up to date");
  auto flags = std::make_shared<IndexFlags>();
  index
      .Add("uri", &flags->uri,
           "A folder or prefix with shards (*.tar, *.tfrecord, *.rec, *.mds), Megatron's .bin and .idx, or raw objects "
           "(class/name.jpg). A single one of these, or a manifest that lists objects (*.csv, *.tsv, *.jsonl, "
           "*.manifest). A pattern with * ** ? [a-z] {a,b} {000..123} (in quotes) stands for all that match")
      .Required();
  index.Add("--output", &flags->output,
            "Write the index to this object instead of the place where Millrace looks for it");
  index.Add("--tokens LENGTH[:TYPE]", &flags->tokens,
            "*.npy and *.bin are arrays of tokens: a sample is LENGTH of them, or a row of an .npy with two axes. "
            "TYPE is the type of the numbers in .bin files, which do not say it: uint16, int32 ...");
  index.Add(
      "--path-column NAME", &flags->open.columns.path,
      "The column of a manifest that names the objects [path, file, filename, image, key, url ...]; several, whose "
      "objects are the fields of one sample: image=COLUMN,mask=COLUMN");
  index.Add("--label-column NAME", &flags->open.columns.label,
            "The column of a manifest that is the class [cls, label, class]");
  index.AddFlag("--no-csv-quotes", &flags->no_csv_quotes,
                "Quotes in a manifest in CSV or TSV are text, as with Python's csv.QUOTE_NONE");
  index.AddFlag(
      "--full", &flags->full,
      "Read everything. Without it, objects that the index has with the same size and ETag are not read again, nor are "
      "shards whose samples other programs have noted");
  index.AddFlag(
      "--skip-bad", &flags->open.skip_bad,
      "Leave out the samples of corrupt or truncated shards from the bad place on, and report them; without it the "
      "first such shard is an error");
  index.AddFlag(
      "--classes", &flags->open.raw.classes,
      "Read the files that hold the classes of raw objects (1.cls beside 1.jpg), which balancing and choosing by class "
      "need; the other raw objects are only listed. Shards with a field cls are read as a whole");
  index.AddFlag(
      "--checksums", &flags->open.raw.all,
      "Read raw objects as a whole, and keep a checksum of each sample; without it, their samples are verified "
      "by the checksums that the store keeps, if it does. Shards whose samples other programs have noted are also read "
      "as a whole, and compared with the hashes in index.json (MDS)");
  index.Add("--part", &flags->part,
            "I/N, such as 2/8: read only every N-th shard, for N machines that share the work; the part that ends last "
            "completes the index");
  index.Add("--memory", &flags->memory, "Budget for buffers [half of the memory]");
  index.AddShown("--outage-limit SECONDS", &flags->outage_limit, kOutageLimitHelp);
  index.AddFlag(
      "--json", &flags->json,
      R"(One JSON object: {"samples", "samples_without_checksum", "objects", "reused_objects", )"
      R"("outlined_objects", "bytes", "fields", "index", "index_bytes", "seconds", "complete", "missing_objects", "damaged", "warnings", )"
      R"("skipped", "skipped_members"})");
  index.Footer(
      "The index lists all samples and their places. For shards it has a checksum of each sample. Raw objects are not "
      "read: their listing is enough. Nor are tar shards with an index of DALI's wds2idx beside them, and MDS shards "
      "whose heads tell where the samples lie. Reading a data set for the first time builds its index. Run this after "
      "the data have changed: only new and changed shards are read, and the result is the same as with --full. A run "
      "that was killed continues where it was. The index is kept beside the data (.millrace/index) or, if that is not "
      "writable, in the cache folder (MILLRACE_CACHE, by default ~/.cache/millrace).\n\n"
      "Examples:\n"
      "  millrace index s3://bucket/train\n"
      "  millrace index s3://bucket/train --full\n"
      "  millrace index s3://bucket/images --checksums\n"
      "  millrace index s3://bucket/train --part 2/8      # on the second of eight machines\n"
      "  millrace index --tokens 1024:uint16 /data/openwebtext\n"
      "  millrace index /data/train --json");
  index.Run([flags] { return ExitStatus("index", HintAtS3(RunIndex(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
