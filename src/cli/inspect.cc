#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/inspect_report.h"
#include "cli/usage.h"
#include "pipeline/loader.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kDecodedSamples = 1'000;
constexpr uint64_t kPreviewedSamples = 24;
constexpr std::string_view kAll = "all";

struct InspectFlags {
  std::string uri;
  std::string decode;  // "": no; "all", or a number
  std::string preview;
  std::optional<uint64_t> samples;
  bool json = false;
};

// Returns the number of samples that --decode asks for; 0: none.
absl::StatusOr<uint64_t> TakeDecode(const std::string& text) {
  if (text.empty()) return 0;
  if (text == kAll) return UINT64_MAX;
  if (const auto count = ParseNumber<uint64_t>(text); count && *count > 0) return *count;
  return UsageError("--decode: '{}' is neither a whole number, 1 or more, nor '{}'", text, kAll);
}

bool EndsAsPng(std::string_view name) {
  return name.ends_with(".png") || name.ends_with(".PNG");
}

absl::Status CheckFlags(const InspectFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  RETURN_IF_ERROR(TakeDecode(flags.decode).status());
  if (!flags.preview.empty()) {
    RETURN_IF_ERROR(CheckObjectUri(flags.preview));
    if (EndsAsPng(flags.preview)) return absl::OkStatus();
    return UsageError("--preview: {} is to be a PNG; give it a name that ends in .png", flags.preview);
  }
  if (!flags.samples) return absl::OkStatus();
  return UsageError("--samples is the number of samples of a preview: add --preview FILE, or leave it out");
}

// Returns the place of the sheet. Within a folder it would be an object of the data set; beside a single one it is not.
absl::StatusOr<Location> PreviewPlace(Stores& stores, const InspectFlags& flags) {
  ASSIGN_OR_RETURN(const DatasetPlace data, FindObjects(stores, flags.uri));
  ASSIGN_OR_RETURN(Location place, stores.OpenObject(flags.preview));
  const std::string uri = place.store->Uri(place.prefix);
  const std::string folder = data.store->Uri(data.Key(""));
  const bool within =
      uri.starts_with(folder) && !(data.selection && !data.selection->Contains(uri.substr(folder.size())));
  if (!data.names.empty() || !within) return place;
  return UsageError(
      "--preview: {} lies within the data set, and would be taken for a part of it; choose a place "
      "outside of {}",
      uri, flags.uri);
}

// The sheet may lie beside a single object or the objects of a manifest, but not in their place.
absl::Status CheckReplacesNothing(const Dataset& dataset, const Location& place) {
  const std::string uri = place.store->Uri(place.prefix);
  const std::string data = dataset.store().Uri(dataset.StoreKey(""));
  std::optional<uint32_t> object;
  if (uri.starts_with(data)) {
    ASSIGN_OR_RETURN(object, dataset.index().FindObject(std::string_view(uri).substr(data.size())));
  }
  if (!object && uri != dataset.index_uri()) return absl::OkStatus();
  return UsageError("--preview: {} is a part of the data set, and would be lost; choose another place", uri);
}

absl::Status WritePreview(const Location& place, const ContactSheet& sheet, const std::stop_token& stop) {
  PutOptions options;
  options.content_type = "image/png";
  options.stop = stop;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, place.store->Write(place.prefix, options));
  RETURN_IF_ERROR(out->Append(AsBytes(sheet.png)));
  return out->Commit().status();
}

// `work` with a line of progress of items.
template <typename Work>
auto WithProgress(const std::string& label, const std::stop_token& stop, const Work& work) {
  ProgressLine line(label, ProgressLine::Unit::kItems);
  return work(line.Task(stop));
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenWithProgress(Runtime& runtime, Stores& stores, const std::string& uri,
                                                          const std::stop_token& stop) {
  ProgressLine line("indexing", ProgressLine::Unit::kBytes);
  OpenOptions options;
  options.stop = stop;
  options.progress = [&line](uint64_t done, uint64_t total) { line.Update(done, total); };
  options.raw.classes = true;
  return Dataset::Open(runtime, stores, uri, options);
}

// Does the checks that need the bytes of samples. `preview` is the place of the sheet, if there is to be one.
absl::Status ReadSome(Runtime& runtime, const InspectFlags& flags, const std::optional<Location>& preview,
                      const std::stop_token& stop, InspectReport* report) {
  const uint64_t size = report->dataset.index().size();
  ASSIGN_OR_RETURN(const uint64_t decode, TakeDecode(flags.decode));
  if (decode > 0) {
    ASSIGN_OR_RETURN(report->decode, WithProgress("decoding", stop, [&](const LongTask& task) {
                       return CheckDecoding(runtime, report->dataset, std::min(decode, size), task);
                     }));
  }
  if (!preview) return absl::OkStatus();
  ASSIGN_OR_RETURN(report->preview,
                   MakePreview(report->dataset, flags.samples.value_or(kPreviewedSamples), runtime.memory(), stop));
  report->preview_uri = preview->store->Uri(preview->prefix);
  return WritePreview(*preview, report->preview->sheet, stop);
}

// The index tells all but these. So the report does without them if the objects cannot be listed, or have changed
// since.
absl::Status TakeSkipped(const Dataset& dataset, const std::stop_token& stop, InspectReport* report) {
  absl::StatusOr<SkippedObjects> skipped = ListSkipped(dataset, stop);
  if (absl::IsCancelled(skipped.status())) return skipped.status();
  if (skipped.ok()) {
    report->skipped = *std::move(skipped);
  } else {
    report->not_listed = ToStd(skipped.status().message());
  }
  return absl::OkStatus();
}

// The loader of a training says so when it is made.
absl::Status TakeRefusal(const Dataset& dataset, InspectReport* report) {
  if (dataset.index().image_fields().empty()) return absl::OkStatus();
  LoaderOptions options;
  options.batch = 1;
  absl::Status status = Loader::Check(dataset, options);
  if (absl::IsCancelled(status) || absl::IsDataLoss(status)) return status;
  report->refused = ToStd(status.message());
  return absl::OkStatus();
}

absl::Status RunInspect(const InspectFlags& flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  InterruptStop interrupt;
  const std::stop_token stop = interrupt.token();
  Runtime runtime;
  Stores stores(runtime);
  std::optional<Location> preview;
  if (!flags.preview.empty()) {
    ASSIGN_OR_RETURN(preview, PreviewPlace(stores, flags));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, OpenWithProgress(runtime, stores, flags.uri, stop));
  if (preview) RETURN_IF_ERROR(CheckReplacesNothing(*dataset, *preview));
  const Index& index = dataset->index();
  InspectReport report{.dataset = *dataset};
  ASSIGN_OR_RETURN(report.survey, WithProgress("reading the index", stop,
                                               [&](const LongTask& task) { return MakeSurvey(index, task); }));
  report.duplicates.compared = index.size();
  if (!report.survey.keys_ascend) {  // else no two are equal
    ASSIGN_OR_RETURN(report.duplicates, WithProgress("comparing keys", stop, [&](const LongTask& task) {
                       return FindDuplicateKeys(index, runtime.memory(), task);
                     }));
  }
  RETURN_IF_ERROR(TakeSkipped(*dataset, stop, &report));
  RETURN_IF_ERROR(TakeRefusal(*dataset, &report));
  ASSIGN_OR_RETURN(report.advice, AdviseOnDataset(*dataset));
  RETURN_IF_ERROR(ReadSome(runtime, flags, preview, stop, &report));
  ASSIGN_OR_RETURN(const std::string said, flags.json ? InspectJson(report) : InspectText(report));
  return WriteStdout(said);
}

}  // namespace

void AddInspect(Command app) {
  const Command inspect =
      app.AddCommand("inspect", "Show what a data set holds: counts, fields, sizes, classes, suspicious samples");
  auto flags = std::make_shared<InspectFlags>();
  inspect
      .Add("uri", &flags->uri,
           "A folder or prefix with shards (tar, TFRecord, RecordIO, MDS) or raw objects, a single one of these, or a "
           "manifest that lists objects; with * ** ? [a-z] {a,b} {000..123} (in quotes) what matches")
      .Required();
  inspect
      .Add("--decode [N|all]", &flags->decode,
           "Also read N samples, evenly spread, or all of them, and decode them: how many fail, and why [1000 samples "
           "if "
           "no number follows]")
      .ValueOrElse(std::to_string(kDecodedSamples));
  inspect.Add("--preview FILE", &flags->preview,
              "Draw samples, evenly spread, with their labels and keys, and write them to this PNG file");
  inspect.Add("--samples", &flags->samples, "Samples of the preview [24]").Number(1, kMaxTiles);
  inspect.AddFlag("--json", &flags->json, "One JSON object instead of text");
  inspect.Footer(
      "Without --decode and --preview it reads only the index (and builds it if it does not exist). It also lists the "
      "objects, to say which of them are passed over. Quantiles of sizes are "
      "within 1 %. Classes are the folders of raw objects, the numbers in the field 'cls' of shards, or the labels "
      "of a manifest.\n\n"
      "Suspicious samples are listed, the first five of each kind: "
      "Empty samples, and samples with an empty field. "
      "Samples that lack a field which at least 95 % of the samples have (one of jpg, png and other images is enough). "
      "Huge samples, above 64 MiB and above 100 times the median. "
      "Samples with the key of an earlier sample. "
      "--decode also finds damaged samples. More: docs/inspect.md\n\n"
      "Examples:\n"
      "  millrace inspect s3://bucket/train\n"
      "  millrace inspect s3://bucket/train/shard-000000.tar\n"
      "  millrace inspect /data/train --json | jq .classes\n"
      "  millrace inspect s3://bucket/train --decode                   # 1000 samples; --decode all: every one\n"
      "  millrace inspect s3://bucket/train --preview sheet.png --samples 60");
  inspect.Run([flags] { return ExitStatus("inspect", HintAtS3(RunInspect(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
