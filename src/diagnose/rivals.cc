#include "diagnose/rivals.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/atomic_file.h"
#include "base/child_process.h"
#include "base/python_child.h"
#include "diagnose/bench_run.h"
#include "diagnose/last_line.h"
#include "transfer/bulk_job.h"
#include "transfer/key_pattern.h"

namespace millrace {

// The files of rivals/, by CMakeLists.txt; rival_loaders.py is the program. Both end with a null.
extern const char* const kRivalNames[];
extern const char* const kRivalTexts[];

namespace {

using RivalJson = nlohmann::json;

constexpr double kLevels = 1;          // of 256, that decoders and filters may differ
constexpr double kStandardErrors = 5;  // that random crops may differ
constexpr std::chrono::minutes kRivalLimit{30};
constexpr std::chrono::seconds kUnmountLimit{10};
constexpr std::string_view kImages = "image";

std::string PythonOf(const std::string& name, const std::string& environments) {
  const std::string own = fmt::format("{}/{}/bin/python", environments, name);
  if (::access(own.c_str(), X_OK) == 0) return own;
  return DefaultPython();
}

/// Adds up the means of images.
class PixelSum {
 public:
  void Add(ByteSpan image) {
    uint64_t sum = 0;
    for (const std::byte value : image) sum += std::to_integer<uint64_t>(value);
    const double mean = static_cast<double>(sum) / static_cast<double>(image.size());
    total_ += mean;
    squares_ += mean * mean;
    ++samples_;
  }
  uint64_t samples() const { return samples_; }
  PixelMeans Means() const {
    const double count = std::max<double>(1, static_cast<double>(samples_));
    const double mean = total_ / count;
    return {.samples = samples_, .mean = mean, .deviation = std::sqrt(std::max(0.0, squares_ / count - mean * mean))};
  }

 private:
  uint64_t samples_ = 0;
  double total_ = 0;
  double squares_ = 0;
};

absl::StatusOr<double> NumberIn(const RivalJson& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  if (json.is_object() && found != json.end() && found->is_number() && std::isfinite(found->get<double>()) &&
      found->get<double>() >= 0) {
    return found->get<double>();
  }
  return absl::InvalidArgumentError(fmt::format("its answer has no number '{}'", name));
}

absl::Status TakeWindows(const RivalJson& json, RivalPoint* point) {
  const auto windows = json.find("windows");
  if (windows == json.end() || !windows->is_array() || windows->empty()) {
    return absl::InvalidArgumentError("its answer has no 'windows'");
  }
  std::vector<double> rates;
  std::vector<double> costs;
  for (const RivalJson& window : *windows) {
    ASSIGN_OR_RETURN(const double seconds, NumberIn(window, "seconds"));
    ASSIGN_OR_RETURN(const double samples, NumberIn(window, "samples"));
    ASSIGN_OR_RETURN(const double cpu, NumberIn(window, "cpu_seconds"));
    if (seconds <= 0 || samples <= 0) return absl::InvalidArgumentError("it has measured nothing");
    rates.push_back(samples / seconds);
    costs.push_back(1000 * cpu / samples);
  }
  point->samples_per_second = Spread::Of(std::move(rates));
  point->cpu_per_1000 = Spread::Of(std::move(costs));
  return absl::OkStatus();
}

absl::Status TakePixels(const RivalJson& json, RivalPoint* point) {
  const auto pixels = json.find("pixels");
  if (pixels == json.end()) return absl::InvalidArgumentError("its answer has no 'pixels'");
  ASSIGN_OR_RETURN(const double samples, NumberIn(*pixels, "samples"));
  ASSIGN_OR_RETURN(point->pixels.mean, NumberIn(*pixels, "mean"));
  ASSIGN_OR_RETURN(point->pixels.deviation, NumberIn(*pixels, "deviation"));
  if (samples > 1e15) return absl::InvalidArgumentError("its answer has too many samples");
  point->pixels.samples = static_cast<uint64_t>(samples);
  const auto whole = pixels->find("whole_epoch");
  point->pixels.whole_epoch = whole != pixels->end() && whole->is_boolean() && whole->get<bool>();
  return absl::OkStatus();
}

/// Returns InvalidArgument also if an epoch has not all images.
absl::StatusOr<std::vector<EpochCost>> ParseEpochs(std::string_view line, const PixelMeans& ours) {
  const RivalJson json = RivalJson::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto epochs = json.is_object() ? json.find("epochs") : json.end();
  if (!json.is_object() || epochs == json.end() || !epochs->is_array() || epochs->empty()) {
    return absl::InvalidArgumentError("its answer has no 'epochs'");
  }
  std::vector<EpochCost> costs;
  for (const RivalJson& epoch : *epochs) {
    EpochCost& cost = costs.emplace_back();
    ASSIGN_OR_RETURN(cost.seconds, NumberIn(epoch, "seconds"));
    ASSIGN_OR_RETURN(cost.cpu_seconds, NumberIn(epoch, "cpu_seconds"));
    ASSIGN_OR_RETURN(const double samples, NumberIn(epoch, "samples"));
    const double expected = ours.whole_epoch ? static_cast<double>(ours.samples) : samples;
    if (samples != expected || samples < 1 || samples > 1e15) {
      return absl::InvalidArgumentError(
          fmt::format("an epoch of it has {:.0f} images, and the data set has {:.0f}", samples, expected));
    }
    cost.samples = static_cast<uint64_t>(samples);
  }
  return costs;
}

absl::Status WritePrograms(const std::string& folder) {
  for (size_t i = 0; kRivalNames[i] != nullptr; ++i)
    RETURN_IF_ERROR(WriteFileAtomically(fmt::format("{}/{}", folder, kRivalNames[i]), kRivalTexts[i]));
  return absl::OkStatus();
}

RivalPoint LeftOut(const RivalRequest& request, int workers, std::string why) {
  return {.name = request.name, .uri = request.uri, .workers = workers, .left_out = std::move(why)};
}

/// The options that come behind these decide if the command makes a copy or measures.
ChildCommand CommandFor(const RivalRequest& request, const RivalRun& run, const BenchSettings& settings) {
  const std::string program = run.scratch + "/rival_loaders.py";
  const bool own = !request.uri.empty();
  ChildCommand command;
  command.words = {PythonOf(request.name, run.environments), program, request.name, own ? request.uri : run.uri};
  const auto add = [&command](const char* option, std::string value) {
    command.words.insert(command.words.end(), {option, std::move(value)});
  };
  add("--kind", own ? "own" : run.ours.kind);
  add("--batch", fmt::format("{}", settings.loader.batch));
  add("--workers", fmt::format("{}", run.workers));
  add("--size", fmt::format("{}", settings.loader.image.width));
  add("--warm-up", fmt::format("{}", settings.warm_up_seconds));
  add("--seconds", fmt::format("{}", settings.window_seconds));
  add("--repeats", fmt::format("{}", settings.windows));
  // One more than there are shows what an epoch has.
  add("--check", fmt::format("{}", run.ours.pixels.samples + (run.ours.pixels.whole_epoch ? 1 : 0)));
  add("--environment", fmt::format("{}/{}", run.environments, request.name));
  add("--scratch", run.scratch + "/rival");
  command.keep_errors = true;
  command.limit = kRivalLimit;
  return command;
}

/// The output of a rival's process, or the reason why there is no output.
struct RivalEnd {
  std::string output;
  std::string left_out;
};
absl::StatusOr<RivalEnd> RunRival(const ChildCommand& command, const std::stop_token& stop) {
  const std::string& python = command.words.front();
  const absl::StatusOr<ChildEnd> end = RunChild(command, stop);
  if (absl::IsCancelled(end.status())) return end.status();
  if (!end.ok()) return RivalEnd{.left_out = fmt::format("'{}' {}", python, ToStd(end.status().message()))};
  if (end->exit_status == 0) return RivalEnd{.output = end->output};
  const std::string_view said = LastLineOf(end->errors);
  return RivalEnd{.left_out =
                      said.empty() ? fmt::format("'{}' ended with {}", python, end->exit_status) : std::string(said)};
}

/// Copies all objects below a place, but for what Millrace keeps there.
absl::Status CopyObjects(const std::string& from_uri, const std::string& to_uri, const std::stop_token& stop) {
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location from, stores.Open(from_uri));
  ASSIGN_OR_RETURN(const Location to, stores.Open(to_uri));
  const std::string below = AsFolder(from.prefix);
  BulkJob job({.stop = stop});
  absl::Status listed = ForEachObject(
      *from.store, below,
      [&](const ObjectInfo& object) -> absl::Status {
        const std::string name = object.key.substr(below.size());
        if (name.ends_with('/') || IsOwnFile(name)) return absl::OkStatus();
        return job.Copy(*from.store, object, *to.store, to.Key(name));
      },
      stop);
  const BulkReport report = job.Finish().copied;
  if (stop.stop_requested()) return absl::CancelledError("the measurement was interrupted");
  if (!report.failures.empty()) return report.failures.begin()->second;
  return listed;
}

/// The same; an error other than Cancelled becomes the reason why the rival is left out, "" if there is none.
absl::StatusOr<std::string> CopyOrSayWhy(const std::string& from_uri, const std::string& to_uri,
                                         const std::stop_token& stop) {
  const absl::Status copied = CopyObjects(from_uri, to_uri, stop);
  if (absl::IsCancelled(copied)) return copied;
  return copied.ok() ? "" : fmt::format("copying the data for it failed: {}", ToStd(copied.message()));
}

/// Gives the request a copy of the data in the rival's own format if it needs one, and is empty; else why there is
/// none.
absl::StatusOr<std::string> MakeCopy(const RivalRun& run, const BenchSettings& settings, RivalRequest* request) {
  const std::string here = run.scratch + "/data";
  const std::string made = run.scratch + "/copy";
  ChildCommand question = CommandFor(*request, run, settings);
  question.words.emplace_back("--needs-copy");
  ASSIGN_OR_RETURN(RivalEnd answer, RunRival(question, settings.stop));
  if (!answer.left_out.empty() || LastLineOf(answer.output) != "yes") return std::move(answer.left_out);
  std::error_code ignored;
  if (!std::filesystem::exists(here, ignored)) {
    ASSIGN_OR_RETURN(std::string why, CopyOrSayWhy(run.uri, here, settings.stop));
    if (!why.empty()) {
      std::filesystem::remove_all(here, ignored);  // so that no other rival takes a part for the whole
      return why;
    }
  }
  ChildCommand command = CommandFor(*request, run, settings);
  command.words.insert(command.words.end(), {"--copy-from", here, "--copy-to", made});
  ASSIGN_OR_RETURN(RivalEnd end, RunRival(command, settings.stop));
  if (end.left_out.empty()) {
    const std::string copy = fmt::format("{}/{}", run.copies, request->name);
    ASSIGN_OR_RETURN(end.left_out, CopyOrSayWhy(made, copy, settings.stop));
    if (end.left_out.empty()) request->uri = copy;
  }
  std::filesystem::remove_all(made, ignored);
  return std::move(end.left_out);
}

/// A rival unmounts and empties its scratch folder at its end. If it was killed, its mount stays and is dead, and what
/// it has kept would be taken by the next one, whose first epoch must find nothing.
void CleanUpAfter(const RivalRequest& request, const RivalRun& run) {
  const std::string scratch = run.scratch + "/rival";
  if (request.name == "s3fs" || request.name == "rclone") {
    for (const char* const program : {"fusermount3", "fusermount"}) {
      const absl::StatusOr<ChildEnd> end =
          RunChild({.words = {program, "-u", "-q", "-z", scratch + "/mount"}, .limit = kUnmountLimit}, {});
      if (end.ok() && end->exit_status == 0) break;
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
}

}  // namespace

const std::vector<std::string>& RivalNames() {
  static const auto* const names =
      new std::vector<std::string>{"dataloader",  "s3torchconnector", "webdataset", "mosaicml", "litdata", "spdl",
                                   "huggingface", "tfdata",           "dali",       "ray",      "s3fs",    "rclone"};
  return *names;
}

absl::StatusOr<std::vector<RivalRequest>> ParseRivals(const std::vector<std::string>& texts) {
  std::vector<RivalRequest> requests;
  std::set<std::string> seen;
  bool all = false;
  for (const std::string& text : texts) {
    for (const std::string& one : std::vector<std::string>(absl::StrSplit(text, ','))) {
      const size_t equals = one.find('=');
      RivalRequest request{.name = one.substr(0, equals)};
      if (equals != std::string::npos) request.uri = one.substr(equals + 1);
      if (one == "all") {
        if (all) return absl::InvalidArgumentError("--rival names all twice");
        all = true;
        continue;
      }
      const std::vector<std::string>& known = RivalNames();
      if (std::find(known.begin(), known.end(), request.name) == known.end()) {
        return absl::InvalidArgumentError(
            fmt::format("--rival takes NAME or NAME=URI, with commas between several, or all, not "
                        "'{}'; the names are {}",
                        one, fmt::join(known, ", ")));
      }
      if (equals != std::string::npos && request.uri.empty()) {
        return absl::InvalidArgumentError(fmt::format("--rival {}: there is no URI behind '='", one));
      }
      if (!seen.insert(request.name).second) {
        return absl::InvalidArgumentError(fmt::format("--rival names {} twice", request.name));
      }
      requests.push_back(std::move(request));
    }
  }
  for (const std::string& name : RivalNames()) {
    if (all && !seen.contains(name)) requests.push_back({.name = name});
  }
  return requests;
}

absl::StatusOr<OwnImages> MeasureOwnImages(const std::string& uri, const BenchSettings& settings, uint64_t most) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchSet> set, BenchSet::Open(uri, settings));
  LoaderOptions options = settings.loader;
  options.epochs = 1;
  options.last = LastBatch::kPad;
  options.start.reset();
  options.bad_samples = BadSamples::kFail;
  ASSIGN_OR_RETURN(const std::unique_ptr<Loader> loader, set->MakeLoader(options));
  PixelSum sum;
  for (bool last = false; !last && sum.samples() < most;) {
    absl::StatusOr<Batch> came = NextBatch(*loader, settings);
    if (absl::IsDataLoss(came.status()))
      return Annotate(came.status(), "other loaders can be compared on whole samples only; leave out --rival");
    ASSIGN_OR_RETURN(const Batch batch, std::move(came));
    const MutableByteSpan images = batch.Bytes(kImages);
    if (images.empty() || settings.loader.image.dtype != ImageSpec{}.dtype) {
      return absl::InvalidArgumentError(
          fmt::format("{}: other loaders are compared by the images that they decode, and "
                      "this data set has no images; leave out --rival",
                      uri));
    }
    const uint64_t bytes = images.size() / batch.size;
    for (uint64_t row = 0; row < batch.valid; ++row) sum.Add(images.subspan(row * bytes, bytes));
    last = batch.last_of_epoch;
  }
  OwnImages ours{.pixels = sum.Means(), .kind = std::string(KindName(set->dataset().index().kind()))};
  ours.pixels.whole_epoch = ours.pixels.samples == set->dataset().index().size();
  return ours;
}

std::string PixelsDiffer(const PixelMeans& ours, const PixelMeans& theirs) {
  if (theirs.samples == 0) return "it has delivered no image";
  if (ours.whole_epoch && (theirs.samples != ours.samples || !theirs.whole_epoch)) {
    return fmt::format("its epoch has {}{} images, and the data set has {}", theirs.whole_epoch ? "" : "more than ",
                       theirs.whole_epoch ? theirs.samples : ours.samples, ours.samples);
  }
  const auto variance = [](const PixelMeans& means) {
    return means.deviation * means.deviation / static_cast<double>(std::max<uint64_t>(1, means.samples));
  };
  const double may_differ = kLevels + kStandardErrors * std::sqrt(variance(ours) + variance(theirs));
  if (std::abs(ours.mean - theirs.mean) <= may_differ) return "";
  return fmt::format("its pixels are others: their mean is {:.2f}, and that of Millrace's images {:.2f}", theirs.mean,
                     ours.mean);
}

absl::StatusOr<RivalPoint> ParseRivalAnswer(std::string_view line) {
  const RivalJson json = RivalJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("its answer is not a JSON object");
  RivalPoint point;
  ASSIGN_OR_RETURN(point.first_batch_seconds, NumberIn(json, "first_batch_seconds"));
  RETURN_IF_ERROR(TakeWindows(json, &point));
  RETURN_IF_ERROR(TakePixels(json, &point));
  if (const auto versions = json.find("versions"); versions != json.end() && versions->is_object()) {
    for (const auto& [package, version] : versions->items()) {
      if (version.is_string()) point.versions.emplace_back(package, version.get<std::string>());
    }
  }
  return point;
}

absl::StatusOr<RivalPoint> MeasureRival(const RivalRequest& request, const RivalRun& run,
                                        const BenchSettings& settings) {
  RivalRequest own = request;  // of a copy, if it gets one
  RETURN_IF_ERROR(WritePrograms(run.scratch));
  if (own.uri.empty() && !run.copies.empty()) {
    ASSIGN_OR_RETURN(std::string why, MakeCopy(run, settings, &own));
    if (!why.empty()) {
      CleanUpAfter(own, run);
      return LeftOut(own, run.workers, std::move(why));
    }
  }
  absl::StatusOr<RivalEnd> end = RunRival(CommandFor(own, run, settings), settings.stop);
  CleanUpAfter(own, run);
  RETURN_IF_ERROR(end.status());
  if (!end->left_out.empty()) return LeftOut(own, run.workers, std::move(end->left_out));
  absl::StatusOr<RivalPoint> point = ParseRivalAnswer(LastLineOf(end->output));
  if (!point.ok()) return LeftOut(own, run.workers, std::string(ToStd(point.status().message())));
  point->name = own.name;
  point->uri = own.uri;
  point->workers = run.workers;
  if (std::string why = PixelsDiffer(run.ours.pixels, point->pixels); !why.empty())
    return LeftOut(own, run.workers, std::move(why));
  return point;
}

absl::StatusOr<RivalEpochs> MeasureRivalEpochs(const RivalRequest& request, const RivalRun& run,
                                               const BenchSettings& settings, uint64_t epochs, bool keep) {
  RETURN_IF_ERROR(WritePrograms(run.scratch));
  ChildCommand command = CommandFor(request, run, settings);
  command.words.insert(command.words.end(), {"--epochs", fmt::format("{}", epochs)});
  if (keep) command.words.emplace_back("--keep");
  absl::StatusOr<RivalEnd> end = RunRival(command, settings.stop);
  CleanUpAfter(request, run);
  RETURN_IF_ERROR(end.status());
  RivalEpochs found{.name = request.name, .kept = keep, .workers = run.workers};
  if (end->left_out.empty()) {
    absl::StatusOr<std::vector<EpochCost>> costs = ParseEpochs(LastLineOf(end->output), run.ours.pixels);
    if (costs.ok()) found.epochs = *std::move(costs);
    end->left_out = ToStd(costs.status().message());
  }
  found.left_out = std::move(end->left_out);
  return found;
}

}  // namespace millrace
