#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "dataset/dataset.h"
#include "plan/plan.h"
#include "shard/field_value.h"

namespace millrace::cli {

namespace {

constexpr size_t kShownClasses = 20;
constexpr size_t kBarWidth = 40;

struct InspectFlags {
  std::string uri;
  bool json = false;
};

// Counts of sizes in buckets that are at most 1 % wide, so that memory does not depend on the data set.
class SizeCounts {
 public:
  void Add(uint64_t size) {
    ++counts_[Bucket(size)];
    ++total_;
    min_ = std::min(min_, size);
    max_ = std::max(max_, size);
    sum_ += static_cast<double>(size);
  }

  /// The size that the given share of samples does not exceed, within 1 %.
  uint64_t Quantile(double share) const {
    const auto rank = static_cast<uint64_t>(share * static_cast<double>(total_ - 1));
    uint64_t seen = 0;
    for (const auto& [bucket, count] : counts_) {
      seen += count;
      if (seen > rank) return std::clamp(LowerBound(bucket), min_, max_);
    }
    return max_;
  }

  /// Samples by power of two: bin i holds sizes below 2^i that are in no bin before.
  std::map<int, uint64_t> Bins() const {
    std::map<int, uint64_t> bins;
    for (const auto& [bucket, count] : counts_) bins[std::bit_width(LowerBound(bucket))] += count;
    return bins;
  }

  uint64_t min() const { return min_; }
  uint64_t max() const { return max_; }
  double mean() const { return sum_ / static_cast<double>(total_); }

 private:
  static constexpr int kFineBits = 7;  // 128 buckets for each power of two

  static uint64_t Bucket(uint64_t size) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(size)) - kFineBits - 1);
    return static_cast<uint64_t>(shift) << 32 | size >> shift;
  }
  static uint64_t LowerBound(uint64_t bucket) { return (bucket & 0xffffffff) << (bucket >> 32); }

  std::map<uint64_t, uint64_t> counts_;  // in order of size
  uint64_t total_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  double sum_ = 0;
};

struct FieldCounts {
  uint64_t samples = 0;
  uint64_t bytes = 0;
  std::set<FieldType> types;  // a list of numbers is an int where it holds one, else an ndarray
};

struct Report {
  SizeCounts sizes;
  std::map<std::string_view, FieldCounts> fields;
};

absl::StatusOr<Report> Walk(const Index& index) {
  Report report;
  ProgressLine line("reading the index", ProgressLine::Unit::kItems);
  IndexedSample sample;
  for (uint64_t i = 0; i < index.size(); ++i) {
    RETURN_IF_ERROR(index.Lookup(i, &sample));
    report.sizes.Add(sample.span.length);
    for (const IndexedField& field : sample.fields) {
      FieldCounts& counts = report.fields[field.name];
      ++counts.samples;
      counts.bytes += field.length;
      counts.types.insert(TypeOfEncoding(field.encoding));
    }
    if (i % 4096 == 0) line.Update(i, index.size());
  }
  return report;
}

// Whether samples of one class lie together so much that reading in index order would show a model one class at a time.
bool ClassSorted(const Index& index) {
  double total = 0;
  for (const ClassCount& one : index.class_counts()) total += static_cast<double>(one.samples);
  const auto classes = static_cast<double>(index.class_counts().size());
  if (classes < 2 || total < 2 * classes) return false;
  double same = 0;  // chance that two samples have one class
  for (const ClassCount& one : index.class_counts())
    same += static_cast<double>(one.samples) * static_cast<double>(one.samples) / (total * total);
  const double runs_if_random = 1 + (total - 1) * (1 - same);
  const auto runs = static_cast<double>(index.class_runs());
  return runs == classes || runs < runs_if_random / 10;
}

std::string TypeNames(const FieldCounts& counts) {
  std::vector<std::string_view> names;
  for (const FieldType type : counts.types) names.push_back(FieldTypeName(type));
  return fmt::format("{}", fmt::join(names, "/"));
}

std::string ToJson(const Dataset& dataset, const Report& report) {
  using Json = nlohmann::ordered_json;
  const Index& index = dataset.index();
  Json fields = Json::array();
  for (const auto& [name, counts] : report.fields)
    fields.push_back({{"name", std::string(name)},
                      {"type", TypeNames(counts)},
                      {"samples", counts.samples},
                      {"bytes", counts.bytes}});
  Json histogram = Json::array();
  for (const auto& [bits, count] : report.sizes.Bins())
    histogram.push_back({{"below", bits < 64 ? uint64_t{1} << bits : UINT64_MAX}, {"samples", count}});
  Json classes = Json::array();
  for (const ClassCount& one : index.class_counts()) classes.push_back({{"name", one.name}, {"samples", one.samples}});
  const SizeCounts& sizes = report.sizes;
  const Json json{{"uri", dataset.uri()},
                  {"kind", std::string(KindName(index.kind()))},
                  {"samples", index.size()},
                  {"objects", index.objects()},
                  {"bytes", index.total_bytes()},
                  {"fields", std::move(fields)},
                  {"sizes",
                   {{"min", sizes.min()},
                    {"mean", sizes.mean()},
                    {"p50", sizes.Quantile(0.5)},
                    {"p99", sizes.Quantile(0.99)},
                    {"max", sizes.max()}}},
                  {"histogram", std::move(histogram)},
                  {"classes", std::move(classes)},
                  {"class_sorted", ClassSorted(index)},
                  {"index", dataset.index_uri()},
                  {"index_bytes", index.file_bytes()},
                  {"fingerprint", fmt::format("{:016x}", index.fingerprint())}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string ClassText(const Index& index) {
  const std::vector<ClassCount>& classes = index.class_counts();
  if (classes.empty()) return {};
  const auto [least, most] = std::minmax_element(classes.begin(), classes.end(),
                                                 [](const auto& a, const auto& b) { return a.samples < b.samples; });
  std::string text = fmt::format("{} classes, of {} ('{}') to {} ('{}') samples\n", classes.size(), least->samples,
                                 least->name, most->samples, most->name);
  for (size_t i = 0; i < std::min(classes.size(), kShownClasses); ++i) {
    text += fmt::format("  {:<24} {:>12}\n", classes[i].name, classes[i].samples);
  }
  if (classes.size() > kShownClasses) text += fmt::format("  ... and {} more\n", classes.size() - kShownClasses);
  return text;
}

std::string ToText(const Dataset& dataset, const Report& report) {
  const Index& index = dataset.index();
  const SizeCounts& sizes = report.sizes;
  std::string text = fmt::format("{}: {} samples in {} {}, {}\n", dataset.uri(), index.size(), index.objects(),
                                 KindTitle(index.kind()), FormatSize(index.total_bytes()));
  text += fmt::format("index {}: {}, fingerprint {:016x}\n\nfields\n", dataset.index_uri(),
                      FormatSize(index.file_bytes()), index.fingerprint());
  for (const auto& [name, counts] : report.fields)
    text += fmt::format("  {:<24} {:<12} {:>12} samples {:>12}\n", name, TypeNames(counts), counts.samples,
                        FormatSize(counts.bytes));
  text += fmt::format("\nsample sizes: min {}, mean {}, p50 {}, p99 {}, max {}\n", FormatSize(sizes.min()),
                      FormatSize(static_cast<uint64_t>(sizes.mean())), FormatSize(sizes.Quantile(0.5)),
                      FormatSize(sizes.Quantile(0.99)), FormatSize(sizes.max()));
  const std::map<int, uint64_t> bins = sizes.Bins();
  uint64_t highest = 0;
  for (const auto& [bits, count] : bins) highest = std::max(highest, count);
  for (const auto& [bits, count] : bins) {
    const auto width = static_cast<size_t>(static_cast<double>(count) / static_cast<double>(highest) * kBarWidth);
    text += fmt::format("  < {:<10} {:>12} {}\n", FormatSize(uint64_t{1} << std::min(bits, 63)), count,
                        std::string(width, '#'));
  }
  if (const std::string classes = ClassText(index); !classes.empty()) text += '\n' + classes;
  const OrderPolicy policy =
      OrderPolicy::ForSamples(Shuffle::kWindow, index.mean_span_bytes(), index.kind() == DataKind::kRawObjects);
  // Where all samples fit into one window, a window shuffles as well as anything.
  if (ClassSorted(index) && index.size() > policy.extent * policy.window) {
    text += fmt::format(
        "\nThe samples are sorted by class, and the default shuffle mixes {} at a time (`window`): train with "
        "--shuffle global (in Python shuffle=\"global\"), or it shows a model few classes at a time.\n",
        policy.extent * policy.window);
  }
  return text;
}

absl::Status RunInspect(const InspectFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  OpenOptions options;
  options.stop = interrupt.token();
  std::unique_ptr<Dataset> dataset;
  {
    ProgressLine line("indexing", ProgressLine::Unit::kBytes);
    options.progress = [&line](uint64_t done, uint64_t total) { line.Update(done, total); };
    ASSIGN_OR_RETURN(dataset, Dataset::Open(runtime, stores, flags.uri, options));
  }
  ASSIGN_OR_RETURN(const Report report, Walk(dataset->index()));
  return WriteStdout(flags.json ? ToJson(*dataset, report) : ToText(*dataset, report));
}

}  // namespace

void AddInspect(CLI::App& app, Action* run) {
  CLI::App* inspect = app.add_subcommand("inspect", "Show what a data set holds: counts, fields, sizes, classes");
  auto flags = std::make_shared<InspectFlags>();
  inspect->add_option("uri", flags->uri, "A folder or prefix with shards (tar, TFRecord, RecordIO, MDS) or raw objects")
      ->required();
  inspect->add_flag("--json", flags->json, "One JSON object instead of text");
  inspect->footer(
      "Reads the index only (and builds it when there is none). Quantiles of sizes are within 1 %. Classes are the "
      "folders of raw\n"
      "objects, or the numbers in the field 'cls' of shards.\n\n"
      "Examples:\n"
      "  millrace inspect s3://bucket/train\n"
      "  millrace inspect /data/train --json | jq .classes");
  inspect->callback([flags, run] {
    *run = [flags] {
      const absl::Status status = RunInspect(*flags);
      return status.ok() ? 0 : Fail("inspect", status);
    };
  });
}

}  // namespace millrace::cli
