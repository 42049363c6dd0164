#include "pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/labels_options.h"
#include "cli/pack_report.h"
#include "cli/pack_text.h"
#include "cli/skipped_text.h"
#include "cli/usage.h"
#include "dataset/dataset.h"
#include "dataset/sample_objects.h"
#include "dataset/skipped_objects.h"
#include "pack/class_map.h"
#include "pack/pack_plan.h"
#include "pack/preflight.h"
#include "pack/scratch_folder.h"
#include "pack/unpack.h"
#include "pipeline/image_samples.h"
#include "shard/manifest.h"
#include "shard/sample_name.h"
#include "store/blocking.h"
#include "transfer/artifact.h"

namespace millrace::cli {

namespace {

constexpr DataKind kFormats[] = {DataKind::kTar, DataKind::kTfRecord, DataKind::kRecordIo, DataKind::kMds};

struct PackFlags {
  double outage_limit = kOutageLimitSeconds;
  std::vector<std::string> sources;
  std::string source;  // all of these, as one URI
  std::string destination;
  PackTextFlags text;
  std::string format = "tar";
  std::string shard_size = "256MiB";
  std::string memory;
  std::string scratch;
  std::string part;
  std::string class_map;
  LabelsFlags labels;
  std::vector<std::string> fields;
  std::optional<uint64_t> resize;
  std::optional<uint64_t> quality;
  PackOptions options;
  bool shuffle = false;
  std::optional<uint64_t> seed;
  bool json = false;
};

// Takes "NAME" or "NAME=NEW".
absl::StatusOr<std::vector<FieldChoice>> TakeFields(const std::vector<std::string>& texts) {
  std::vector<FieldChoice> fields;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    FieldChoice& field = fields.emplace_back();
    field.name = text.substr(0, equals);
    field.as = equals == std::string::npos ? text : text.substr(equals + 1);
    if (field.name.empty() || field.as.empty()) return UsageError("--field: '{}' is not NAME or NAME=NEW", text);
    for (size_t i = 0; i + 1 < fields.size(); ++i) {
      if (fields[i].name == field.name) return UsageError("--field names '{}' twice", field.name);
    }
  }
  return fields;
}

absl::Status TakeImages(const PackFlags& flags, ImageChange* images) {
  if (flags.quality && !flags.resize) {
    return UsageError("--quality is that of the images that --resize makes: add --resize, or leave it out");
  }
  if (flags.resize) images->shorter_side = static_cast<int>(*flags.resize);
  if (flags.quality) images->quality = static_cast<int>(*flags.quality);
  return absl::OkStatus();
}

DataKind TakeFormat(std::string_view word) {
  for (const DataKind kind : kFormats) {
    if (KindName(kind) == word) return kind;
  }
  return DataKind::kTar;  // the command line takes no other words
}

absl::StatusOr<std::optional<ClassMap>> ReadClassMap(Stores& stores, const std::string& uri) {
  constexpr uint64_t kMaxBytes = 256 << 20;
  if (uri.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const Location location, stores.OpenObject(uri));
  ASSIGN_OR_RETURN(const std::string text, ReadAll(*location.store, location.prefix, kMaxBytes));
  absl::StatusOr<ClassMap> map = ParseClassMap(text);
  if (!map.ok()) return Annotate(map.status(), fmt::format("--class-map: {}", uri));
  return *std::move(map);
}

absl::StatusOr<PackOptions> TakeOptions(const PackFlags& flags) {
  PackOptions options = flags.options;
  ASSIGN_OR_RETURN(options.shard_bytes, TakeSize("--shard-size", flags.shard_size));
  if (!flags.part.empty()) {
    ASSIGN_OR_RETURN(const PartOfWork work, TakePart(flags.part, kMaxShards));
    options.part = work.part;
    options.parts = work.parts;
  }
  RETURN_IF_ERROR(CheckUri(flags.source));
  RETURN_IF_ERROR(CheckUri(flags.destination));
  if (!flags.class_map.empty()) RETURN_IF_ERROR(CheckObjectUri(flags.class_map));
  if (options.parts > 1 && options.force) {
    return UsageError(
        "--force with --part would remove what other parts have written: remove the destination, then start all parts");
  }
  if (flags.seed && !flags.shuffle) return UsageError("--seed is that of a shuffle: add --shuffle, or leave it out");
  if (flags.shuffle) options.shuffle_seed = flags.seed.value_or(0);
  options.format = TakeFormat(flags.format);
  ASSIGN_OR_RETURN(options.fields, TakeFields(flags.fields));
  RETURN_IF_ERROR(TakeImages(flags, &options.images));
  return options;
}

// Represents the unpacked files, and their place; nothing for a source that needs no unpacking.
struct UnpackedSource {
  std::unique_ptr<ScratchFolder> scratch;
  std::unique_ptr<UnpackedNames> names;
  std::vector<UnpackDamage> damaged;
  std::optional<SkippedObjects> skipped;  // what lies beside the compressed shards
};

absl::StatusOr<std::string> ScratchBase(const PackFlags& flags) {
  const std::string base = flags.scratch.empty() ? DefaultCacheFolder() : flags.scratch;
  if (!base.empty()) return base;
  return absl::InvalidArgumentError(fmt::format(
      "{0}: compressed shards and Parquet are unpacked first, and there is no cache folder (no HOME); name a folder "
      "with room for all of them: `millrace pack {0} {1} --scratch DIR`",
      flags.source, flags.destination));
}

// The scratch folder must be no part of what is read, or written, and neither a part of it, since it is removed.
absl::Status CheckScratch(Stores& stores, const std::string& path, std::initializer_list<DatasetPlace> places) {
  ASSIGN_OR_RETURN(const Location scratch, stores.Open(path));
  const std::string folder = scratch.store->Uri(scratch.Key(""));
  for (const DatasetPlace& place : places) {
    const std::string& uri = place.uri;
    if (CheckApart(place, scratch).ok()) continue;
    if (folder.starts_with(uri) && IsHiddenKey(folder.substr(uri.size()))) continue;  // ~/.cache, where ~ is packed
    return UsageError("cannot unpack into {}: {} lies around or within it; name another folder by --scratch", folder,
                      uri);
  }
  return absl::OkStatus();
}

// The folder of a run that was killed when it had packed all; null if there is none, or if another run uses it.
std::unique_ptr<ScratchFolder> ScratchLeft(const PackFlags& flags, const std::string& id) {
  const absl::StatusOr<std::string> base = ScratchBase(flags);
  std::error_code ignored;
  if (!base.ok() || !std::filesystem::exists(ScratchFolder::PathOf(*base, id), ignored)) return nullptr;
  absl::StatusOr<std::unique_ptr<ScratchFolder>> taken = ScratchFolder::Take(*base, id);
  return taken.ok() ? *std::move(taken) : nullptr;
}

// Unpacks what is compressed, and Parquet, into a folder; `unpacked` knows it also where that fails midway. Returns a
// report where nothing is to be done.
absl::StatusOr<std::optional<PackReport>> UnpackSource(const PackFlags& flags, Runtime& runtime, Stores& stores,
                                                       const DatasetPlace& from, const Location& to,
                                                       PackOptions* options, UnpackedSource* unpacked) {
  if (ManifestFormatOf(flags.source)) return std::nullopt;  // it lists no shards
  ASSIGN_OR_RETURN(const auto compressed, FindCompressedShards(from, options->stop));
  if (!compressed) return std::nullopt;
  unpacked->skipped = compressed->skipped;
  options->origin = PackOrigin{.uri = from.uri, .id = compressed->id, .damaged = {}};
  options->names_for_loaders =
      options->format == DataKind::kTar && options->fields.empty() &&
      std::any_of(compressed->objects.begin(), compressed->objects.end(),
                  [](const ObjectInfo& object) { return object.key.ends_with(kParquetSuffix); });
  ASSIGN_OR_RETURN(std::optional<PackReport> found, PreflightDestination(to, *options));
  if (found) {
    unpacked->scratch = ScratchLeft(flags, compressed->id);
    return found;
  }
  ASSIGN_OR_RETURN(const std::string base, ScratchBase(flags));
  RETURN_IF_ERROR(CheckScratch(stores, ScratchFolder::PathOf(base, compressed->id), {from, to}));
  ASSIGN_OR_RETURN(unpacked->scratch, ScratchFolder::Take(base, compressed->id));
  ASSIGN_OR_RETURN(const Location scratch, stores.OpenOwn(unpacked->scratch->folder()));
  ProgressLine line("unpacking", ProgressLine::Unit::kBytes);
  const UnpackOptions how{.skip_bad = options->skip_bad,
                          .progress = [&line](uint64_t done, uint64_t total) { line.Update(done, total); },
                          .stop = options->stop};
  ASSIGN_OR_RETURN(unpacked->damaged, Unpack(runtime, from, *compressed, scratch, how));
  options->class_names = ClassesOfUnpacked(from, *compressed, scratch);
  unpacked->names = std::make_unique<UnpackedNames>(from, *compressed, unpacked->scratch->path());
  for (const UnpackDamage& shard : unpacked->damaged) options->origin->damaged[shard.plain] = shard.key;
  return std::nullopt;
}

// Leaves out the samples that a Loader of the packed data set would leave out, if the source is one of images.
absl::StatusOr<ImageSamples::LeftOut> ChooseSamples(Runtime& runtime, const Dataset& source, PackOptions* options) {
  ASSIGN_OR_RETURN(const Subset all, InLabelsFile(runtime, source, MissingLabels::kRefuse));
  WantedFields wanted{.images = options->fields.empty(), .classes = options->fields.empty(), .names = {}};
  for (const FieldChoice& field : options->fields) {
    const std::vector<std::string>& images = source.index().image_fields();
    wanted.images = wanted.images || std::find(images.begin(), images.end(), field.name) != images.end();
    wanted.classes = wanted.classes || field.name == kClassField;
    if (field.name != kClassField) wanted.names.push_back(field.name);
  }
  wanted.classes = wanted.classes && !options->classes;
  ASSIGN_OR_RETURN(const ImageSamples found, OnlyImageSamples(all, wanted));
  RETURN_IF_ERROR(found.unlabelled);
  RETURN_IF_ERROR(found.empty_classes);
  options->samples = found.source.parts().front().selection;
  return found.left_out.empty() ? ImageSamples::LeftOut() : found.left_out.front();
}

absl::StatusOr<PackResult> PackAll(const PackFlags& flags, PackOptions options, UnpackedSource* unpacked) {
  ASSIGN_OR_RETURN(const std::chrono::nanoseconds outage_limit, TakeOutageLimit(flags.outage_limit));
  InterruptStop interrupt;
  options.stop = interrupt.token();
  RuntimeOptions limits;
  RETURN_IF_ERROR(TakeSize("--memory", flags.memory, &limits.memory_bytes));
  Runtime runtime(limits);
  Stores stores(runtime);
  stores.SetOutageLimit(outage_limit);
  ASSIGN_OR_RETURN(const DatasetPlace from, FindObjects(stores, flags.source, options.stop));
  ASSIGN_OR_RETURN(const Location to, stores.Open(flags.destination));
  RETURN_IF_ERROR(AsUsage(CheckApart(from, to)));
  ASSIGN_OR_RETURN(options.classes, ReadClassMap(stores, flags.class_map));
  ASSIGN_OR_RETURN(const std::optional<PackReport> found,
                   UnpackSource(flags, runtime, stores, from, to, &options, unpacked));
  if (found) return PackResult{.report = *found, .passed_over = *unpacked->skipped, .left_out = {}};
  OpenOptions open;
  open.stop = interrupt.token();
  open.skip_bad = options.skip_bad;
  open.labels = flags.labels.file();
  open.raw.classes = true;  // they become numbers in the shards
  ProgressLine indexing("indexing", ProgressLine::Unit::kBytes);
  open.progress = [&indexing](uint64_t done, uint64_t total) { indexing.Update(done, total); };
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> source,
                   Dataset::Open(runtime, stores, unpacked->scratch ? unpacked->scratch->path() : flags.source, open));
  indexing.Clear();
  PackResult result;
  ASSIGN_OR_RETURN(result.left_out, ChooseSamples(runtime, *source, &options));
  if (source->index().kind() == DataKind::kTokens) {
    PrintError(
        "millrace pack: warning: {}: rows of tokens (`feed --tokens`, `Loader(tokens=...)`) are made of token "
        "files, not of shards packed from them; for these copy the files: millrace sync {} {}\n",
        Printable(flags.source), Printable(flags.source), Printable(flags.destination));
  }
  ProgressLine packing("packing", ProgressLine::Unit::kBytes);
  options.progress = [&packing](uint64_t done, uint64_t total) { packing.Update(done, total); };
  ASSIGN_OR_RETURN(result.report, Pack(runtime, stores, *source, flags.destination, options));
  if (unpacked->skipped) {
    result.passed_over = *unpacked->skipped;
  } else if (source->built()) {
    result.passed_over = source->built()->skipped;
  } else {
    absl::StatusOr<SkippedObjects> skipped = ListSkipped(*source, options.stop);
    if (skipped.ok()) {
      result.passed_over = *std::move(skipped);
    } else {  // everything is packed
      PrintError("millrace pack: warning: the objects that were passed over are not counted: {}\n",
                 ToStd(skipped.status().message()));
    }
  }
  return result;
}

// The same command would end in the same way again: the unpacked files are not needed.
bool IsRefusal(const absl::Status& status) {
  return absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status);
}

// Prints the error, and what it leaves behind.
absl::Status Explain(const absl::Status& status, const PackFlags& flags, const UnpackedSource& unpacked) {
  if (!unpacked.scratch && !absl::IsCancelled(status)) return status;
  std::string message(ToStd(status.message()));
  if (absl::IsCancelled(status)) {
    message = fmt::format("interrupted; {} is not complete: run the same command again to continue", flags.destination);
  } else if (unpacked.names) {
    message = unpacked.names->Translate(message);
  }
  if (unpacked.scratch && IsRefusal(status)) {
    unpacked.scratch->Remove();
    return absl::Status(status.code(), message);
  }
  std::error_code ignored;  // what cannot be looked at is not spoken of
  if (unpacked.scratch && !std::filesystem::is_empty(unpacked.scratch->path(), ignored) && !ignored) {
    message += fmt::format("; unpacked files stay in {}: the same command uses it, and removes it at the end{}",
                           unpacked.scratch->path(),
                           absl::IsResourceExhausted(status) ? " (--scratch DIR unpacks elsewhere)" : "");
  }
  return absl::Status(status.code(), message);
}

absl::StatusOr<PackResult> PackAndClear(const PackFlags& flags, PackOptions options) {
  UnpackedSource unpacked;
  absl::StatusOr<PackResult> result = PackAll(flags, std::move(options), &unpacked);
  if (!result.ok()) return Explain(result.status(), flags, unpacked);
  if (!unpacked.scratch) return result;
  unpacked.scratch->Remove();
  for (SkippedSample& sample : result->report.skipped) sample.why = unpacked.names->Translate(sample.why);
  for (const UnpackDamage& shard : unpacked.damaged)
    PrintError("millrace pack: warning: {}: {}\n", Printable(shard.uri), Printable(shard.why));
  return result;
}

// Returns a list of URIs as one, which the braces of a selection take.
std::string JoinUris(const std::vector<std::string>& uris) {
  if (uris.size() == 1) return uris.front();
  std::string list;
  for (const std::string& uri : uris) {
    list += list.empty() ? '{' : ',';
    for (const char c : uri) {
      if (c == ',') list += '\\';
      list += c;
    }
  }
  return list + '}';
}

absl::Status RunPack(const PackFlags& flags) {
  if (!flags.text.tokenizer.empty()) {
    return RunPackText(flags.sources, flags.destination, flags.text, flags.options.skip_bad, flags.options.force,
                       flags.json);
  }
  ASSIGN_OR_RETURN(PackOptions options, TakeOptions(flags));
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const PackResult result, PackAndClear(flags, std::move(options)));
  const double seconds = SecondsSince(start);
  WarnOfPack(result.report);
  if (result.left_out.samples > 0) PrintError("millrace pack: warning: {}\n", Printable(result.left_out.sentence));
  if (flags.json) return WriteStdout(PackReportJson(result, seconds));
  return WriteStdout(PackReportText(result.report, flags.part, flags.destination, seconds) +
                     SkippedText(result.passed_over));
}

constexpr const char* kPackFooter =
    "Samples keep their keys, fields and values (RecordIO: one field and a label, no names). The class folder of raw "
    "objects becomes the field 'cls': its number. The shards come with their index. The same source and options give "
    "the same bytes, on any number of machines.\n\n"
    "After an interrupt, a kill or an error the same command continues. Until all shards are written, the "
    "destination is not a data set yet. More: docs/pack.md\n\n"
    "Examples:\n"
    "  millrace pack /data/images s3://bucket/train --shard-size 256MiB\n"
    "  millrace pack /data/images s3://bucket/train --shuffle --seed 7 --class-map classes.txt\n"
    "  millrace pack s3://bucket/train s3://bucket/cleaned --labels s3://bucket/labels.csv\n"
    "  millrace pack s3://bucket/small-shards s3://bucket/large-shards --shard-size 1GiB\n"
    "  millrace pack s3://bucket/tfrecords /data/tar --field image/encoded=jpg --field image/class/label=cls\n"
    "  millrace pack s3://bucket/parquet s3://bucket/train --field image=jpg --field label=cls\n"
    "  millrace pack /data/images s3://bucket/train --resize 256 --jpeg-tiles\n"
    "  millrace pack s3://bucket/train /data/mds --format mds --shard-size 64MiB\n"
    "  millrace pack s3://bucket/raw s3://bucket/train --part 2/8      # on the second of eight machines\n"
    "  millrace pack corpus/*.jsonl.gz s3://bucket/tokens --tokenizer tokenizer.json --eos '<|endoftext|>'";

}  // namespace

void AddPack(Command app) {
  const Command pack = app.AddCommand("pack", "Write a data set as shards: WebDataset tar, TFRecord, RecordIO or MDS");
  auto flags = std::make_shared<PackFlags>();
  pack.Add("source ... destination", &flags->sources,
           "A folder or prefix with raw objects (class/name.jpg), shards (*.tar, *.tfrecord, *.rec, *.mds, compressed "
           "or not) or Parquet files, or a single one of these. A pattern with * ** ? [a-z] {a,b} {000..123} (in "
           "quotes) stands for all that match. Several sources are one data set. The last one is the destination: an "
           "empty folder or prefix, for shard-000000.tar and so on")
      .Required();
  std::vector<std::string> formats;
  for (const DataKind kind : kFormats) formats.emplace_back(KindName(kind));
  pack.AddShown("--format", &flags->format,
                "Format of the shards: tar (WebDataset), tfrecord, recordio (MXNet) or mds (MosaicML)")
      .Words(formats);
  pack.AddShown("--shard-size", &flags->shard_size, "Largest size of a shard; only a larger single sample exceeds it");
  pack.AddFlag("--shuffle", &flags->shuffle, "Shuffle the samples by --seed; without it they keep their order");
  pack.Add("--seed", &flags->seed, "Seed of --shuffle: the same seed gives the same shards [0]").Number(0);
  pack.Add("--class-map", &flags->class_map,
           "The numbers of the class folders, for the field 'cls': JSON such as {\"cat\": 3}, or the names, one "
           "a line, numbered from 0 [their places in bytewise order]");
  AddLabelsOptions(pack, &flags->labels, /*with_missing=*/false);
  pack.Add(
          "--field", &flags->fields,
          "NAME or NAME=NEW: pack this field, and call it NEW; repeatable; fields that are not named are left out [all "
          "fields, under their names]")
      .ManyValues();
  pack.Add("--resize", &flags->resize,
           "Resize images whose shorter side has more than N pixels to N there; JPEGs stay JPEGs, PNGs in RGB stay "
           "PNGs, PNGs in grey or with a palette stay as they are because they may be masks [images keep their size]")
      .Number(1, 65'500);
  pack.Add("--quality", &flags->quality, "Quality of the JPEGs that --resize makes, 1 to 100 [90]").Number(1, 100);
  pack.AddFlag("--jpeg-tiles", &flags->options.images.jpeg_tiles,
               "Add restart markers to JPEGs, without loss, so that feed decodes only those parts of an image that a "
               "crop needs; all programs can still read them");
  pack.Add("--part", &flags->part,
           "I/N, such as 2/8: write only every N-th shard, for N machines that share the work; the part that finishes "
           "last completes the data set");
  pack.AddFlag(
      "--skip-bad", &flags->options.skip_bad,
      "Leave out and report samples that are damaged, missing or changed, and those behind the damage of a "
      "shard. It also leaves out files with the name of an image that do not begin as one. Without it the first such "
      "sample ends the pack");
  pack.Add(
      "--scratch", &flags->scratch,
      "Folder in which compressed shards (*.tar.gz, *.tar.zst) and Parquet files are unpacked first. It needs room "
      "for their unpacked size, and is cleared at the end [the cache folder]");
  pack.Add("--memory", &flags->memory, "Budget for buffers [half of the memory]");
  AddPackTextOptions(pack, &flags->text);
  pack.AddFlag("--force", &flags->options.force, "Start from the beginning, and replace the shards at the destination");
  pack.AddShown("--outage-limit SECONDS", &flags->outage_limit, kOutageLimitHelp);
  pack.AddFlag(
      "--json", &flags->json,
      R"(One JSON object: {"samples", "shards", "bytes", "index_bytes", "complete", "missing_shards", )"
      R"("kept_shards", "already_packed", "seconds", "skipped", "incomplete_objects", "left_out", "passed_over"})");
  pack.Footer(kPackFooter);
  pack.Run([flags] {
    if (flags->sources.size() < 2)
      return ExitStatus("pack", absl::Status(UsageError("a source and a destination are required")));
    flags->destination = flags->sources.back();  // a list takes all that is no option
    flags->sources.pop_back();
    flags->source = JoinUris(flags->sources);
    return ExitStatus("pack", HintAtS3(RunPack(*flags), {flags->source}));
  });
}

}  // namespace millrace::cli
