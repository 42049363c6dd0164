#include "cli/inspect_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/counted.h"
#include "base/size.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/skipped_text.h"
#include "store/joined_objects.h"

namespace millrace::cli {

namespace {

constexpr size_t kShownClasses = 20;
constexpr size_t kBarWidth = 40;

// Looks up names of objects; the first error sticks.
class ObjectNames {
 public:
  explicit ObjectNames(const Index& index) : index_(index) {}
  std::string Of(const SamplePlace& place) {
    IndexedObject object;
    if (status_.ok()) status_ = index_.LookupObject(place.object, &object);
    return JoinedName(object.key);
  }
  const absl::Status& status() const { return status_; }

 private:
  const Index& index_;
  absl::Status status_;
};

std::string TypeNames(const FieldCounts& counts) {
  std::vector<std::string_view> names;
  for (const FieldType type : counts.types) names.push_back(FieldTypeName(type));
  return fmt::format("{}", fmt::join(names, "/"));
}

JsonObject PlaceJson(const SamplePlace& place, ObjectNames& names) {
  return {{"object", names.Of(place)}, {"key", place.key}, {"sample", place.number}, {"bytes", place.bytes}};
}

JsonObject FindingJson(const Finding& finding, ObjectNames& names) {
  JsonArray examples;
  for (const SamplePlace& place : finding.first) examples.Add(PlaceJson(place, names));
  return {{"samples", finding.count}, {"examples", examples}};
}

JsonObject SuspiciousJson(const InspectReport& report, ObjectNames& names) {
  const Survey& survey = report.survey;
  JsonArray empty_fields;
  for (const auto& [name, counts] : survey.fields) {
    if (counts.empty.count > 0) empty_fields.Add(FindingJson(counts.empty, names).Add("field", name));
  }
  JsonArray lacking;
  for (const LackingField& field : survey.lacking)
    lacking.Add(FindingJson(field.samples, names).Add("fields", field.names));
  const JsonArray pairs = JsonOfEach(report.duplicates.examples, [&](const DuplicateKey& pair) {
    return JsonObject{
        {"key", pair.first.key}, {"first", PlaceJson(pair.first, names)}, {"again", PlaceJson(pair.again, names)}};
  });
  return {{"empty", FindingJson(survey.empty, names)},
          {"empty_fields", empty_fields},
          {"lacking_fields", lacking},
          {"huge", FindingJson(survey.huge, names).Add("above", survey.huge_above)},
          {"duplicate_keys",
           JsonObject{
               {"samples", report.duplicates.count}, {"compared", report.duplicates.compared}, {"examples", pairs}}}};
}

Json DecodeJson(const std::optional<DecodeReport>& decode, ObjectNames& names) {
  if (!decode) return nullptr;
  JsonArray examples;
  for (const BadSample& bad : decode->first) examples.Add(PlaceJson(bad.place, names).Add("why", bad.why));
  return JSON_OF(decode->samples, decode->images, decode->odd, decode->failed, decode->too_large, examples);
}

Json PreviewJson(const InspectReport& report, ObjectNames& names) {
  if (!report.preview) return nullptr;
  const ContactSheet& sheet = report.preview->sheet;
  JsonArray samples;
  for (size_t i = 0; i < report.preview->samples.size(); ++i) {
    const PreviewedSample& sample = report.preview->samples[i];
    const SheetPlace& place = sheet.places[i];
    JsonObject one = PlaceJson(sample.place, names);
    one.Add("label", sample.label);
    if (!sample.problem.empty()) one.Add("why", sample.problem);
    samples.Add(one.Add("box", JsonArray{place.x, place.y, place.width, place.height}));
  }
  return JSON_OF(Named("uri", report.preview_uri), sheet.width, sheet.height, samples);
}

JsonArray FieldsJson(const Survey& survey) {
  return JsonOfEach(survey.fields, [](const auto& field) {
    const auto& [name, counts] = field;
    return JSON_OF(name, Named("type", TypeNames(counts)), counts.samples, counts.bytes);
  });
}

std::string ClassText(const Index& index) {
  const std::vector<ClassCount>& classes = index.class_counts();
  if (classes.empty()) return {};
  const auto [least, most] = std::minmax_element(classes.begin(), classes.end(),
                                                 [](const auto& a, const auto& b) { return a.samples < b.samples; });
  std::string text = classes.size() == 1
                         ? std::string("\n1 class\n")
                         : fmt::format("\n{} classes, of {} ('{}') to {} ('{}') samples{}\n", classes.size(),
                                       least->samples, Printable(least->name), most->samples, Printable(most->name),
                                       IsClassSorted(index) ? ", sorted by class" : "");
  for (size_t i = 0; i < std::min(classes.size(), kShownClasses); ++i) {
    text += fmt::format("  {:<24} {:>12}\n", Printable(classes[i].name), classes[i].samples);
  }
  if (classes.size() > kShownClasses) text += fmt::format("  ... and {} more\n", classes.size() - kShownClasses);
  return text;
}

std::string SizesText(const SizeCounts& sizes) {
  if (sizes.count() == 0) return {};
  std::string text = fmt::format("\nsample sizes: min {}, mean {}, p50 {}, p99 {}, max {}\n", FormatSize(sizes.min()),
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
  return text;
}

std::string PlaceText(const SamplePlace& place, ObjectNames& names) {
  return fmt::format("{}, '{}'", Printable(names.Of(place)), Printable(place.key));
}

std::string FindingText(std::string_view what, const Finding& finding, ObjectNames& names) {
  if (finding.count == 0) return {};
  std::string text = fmt::format("  {}: {}\n", what, finding.count);
  for (const SamplePlace& place : finding.first)
    text += fmt::format("    {}, {}\n", PlaceText(place, names), FormatSize(place.bytes));
  if (finding.count > finding.first.size()) text += "    ...\n";
  return text;
}

std::string DuplicatesText(const DuplicateKeys& duplicates, ObjectNames& names) {
  if (duplicates.count == 0) return {};
  std::string text = fmt::format("  with the key of a sample before them: {}\n", duplicates.count);
  for (const DuplicateKey& pair : duplicates.examples) {
    text += fmt::format("    '{}': {} (sample {}) and {} (sample {})\n", Printable(pair.first.key),
                        Printable(names.Of(pair.first)), pair.first.number, Printable(names.Of(pair.again)),
                        pair.again.number);
  }
  if (duplicates.count > duplicates.examples.size()) text += "    ...\n";
  return text;
}

std::string IncompleteText(const std::vector<std::string>& incomplete) {
  if (incomplete.empty()) return {};
  const bool one = incomplete.size() == 1;
  return fmt::format("\n{} damaged when the index was built, and {} not there as a whole; the first: {}\n",
                     one ? "1 of the shards was" : fmt::format("{} of the shards were", incomplete.size()),
                     one ? "is" : "are", Printable(incomplete.front()));
}

std::string SuspiciousText(const InspectReport& report, ObjectNames& names) {
  const Survey& survey = report.survey;
  std::string text = FindingText("empty", survey.empty, names);
  for (const auto& [name, counts] : survey.fields)
    text += FindingText(fmt::format("with an empty '{}'", Printable(name)), counts.empty, names);
  for (const LackingField& field : survey.lacking) {
    text += FindingText(fmt::format("without '{}', which nearly all others have",
                                    Printable(fmt::format("{}", fmt::join(field.names, "' or '")))),
                        field.samples, names);
  }
  text += FindingText(fmt::format("huge (above {})", FormatSize(survey.huge_above)), survey.huge, names);
  text += DuplicatesText(report.duplicates, names);
  const bool nothing = text.empty() && report.refused.empty();
  if (!text.empty()) text = "\nsuspicious samples\n" + text;
  if (nothing) text = "\nno suspicious samples in the index\n";
  if (!report.refused.empty())
    text += fmt::format("\na Loader of images refuses to start: {}\n", Printable(report.refused));
  if (report.duplicates.compared < report.dataset.index().size()) {
    text += fmt::format("only the keys of the first {} were compared: memory does not do for more\n",
                        Counted(report.duplicates.compared, "sample"));
  }
  return text;
}

std::string DecodeText(const DecodeReport& decode, uint64_t samples, ObjectNames& names) {
  std::string text = fmt::format("\nread {} of {}, and decoded {}: ", decode.samples, Counted(samples, "sample"),
                                 Counted(decode.images, "image"));
  if (decode.too_large > 0) text += fmt::format("{} too large for the memory there is, ", decode.too_large);
  if (decode.odd > 0) text += fmt::format("{} shown in spite of warnings of the codec, ", Counted(decode.odd, "image"));
  if (decode.failed == 0) return text + (decode.too_large == 0 ? "all are sound\n" : "all others are sound\n");
  text += fmt::format("{} of the samples failed\n", decode.failed);
  for (const BadSample& bad : decode.first)
    text += fmt::format("    {}: {}\n", PlaceText(bad.place, names), Printable(bad.why));
  if (decode.failed > decode.first.size()) text += "    ...\n";
  return text;
}

}  // namespace

absl::StatusOr<std::string> InspectJson(const InspectReport& report) {
  const Dataset& dataset = report.dataset;
  const Index& index = dataset.index();
  const SizeCounts& sizes = report.survey.sizes;
  ObjectNames names(index);
  JsonArray histogram;
  for (const auto& [bits, count] : sizes.Bins())
    histogram.Add(JsonObject{{"below", bits < 64 ? uint64_t{1} << bits : UINT64_MAX}, {"samples", count}});
  JsonArray classes;
  for (const ClassCount& one : index.class_counts()) classes.Add(JSON_OF(one.name, one.samples));
  const JsonObject json =
      JSON_OF(dataset.uri(), Named("kind", KindName(index.kind())), Named("samples", index.size()),
              Named("samples_without_checksum", index.samples_without_crc()), Named("objects", CountObjects(index)),
              Named("bytes", index.total_bytes()), Named("fields", FieldsJson(report.survey)),
              Named("sizes", JSON_OF(sizes.min(), sizes.mean(), Named("p50", sizes.Quantile(0.5)),
                                     Named("p99", sizes.Quantile(0.99)), sizes.max())),
              histogram, classes, Named("class_sorted", IsClassSorted(index)),
              Named("incomplete_objects", report.survey.incomplete),
              Named("skipped", report.not_listed.empty() ? SkippedJson(report.skipped)
                                                         : JsonObject{{"not_listed", report.not_listed}}),
              Named("suspicious", SuspiciousJson(report, names)), report.refused,
              Named("decode", DecodeJson(report.decode, names)), Named("preview", PreviewJson(report, names)),
              report.advice, Named("index", dataset.index_uri()), Named("index_bytes", index.file_bytes()),
              Named("fingerprint", fmt::format("{:016x}", index.fingerprint())));
  RETURN_IF_ERROR(names.status());
  return json.Versioned("inspect");
}

absl::StatusOr<std::string> InspectText(const InspectReport& report) {
  const Dataset& dataset = report.dataset;
  const Index& index = dataset.index();
  ObjectNames names(index);
  std::string text =
      fmt::format("{}: {} in {}, {}\n", dataset.uri(), Counted(index.size(), "sample"),
                  Counted(CountObjects(index), ObjectTitle(index.kind())), FormatSize(index.total_bytes()));
  text += fmt::format("index {}: {}, fingerprint {:016x}\n\nfields\n", dataset.index_uri(),
                      FormatSize(index.file_bytes()), index.fingerprint());
  for (const auto& [name, counts] : report.survey.fields)
    text += fmt::format("  {:<24} {:<12} {:>12} samples {:>12}\n", Printable(name), TypeNames(counts), counts.samples,
                        FormatSize(counts.bytes));
  if (const std::string skipped = SkippedText(report.skipped); !skipped.empty()) text += '\n' + skipped;
  if (!report.not_listed.empty())
    text += fmt::format("\nobjects that are passed over: not listed: {}\n", Printable(report.not_listed));
  text += SizesText(report.survey.sizes) + ClassText(index) + IncompleteText(report.survey.incomplete) +
          SuspiciousText(report, names);
  if (report.decode) text += DecodeText(*report.decode, index.size(), names);
  if (report.preview) {
    const ContactSheet& sheet = report.preview->sheet;
    text += fmt::format("\npreview of {}: {} ({} x {} pixels)\n", Counted(report.preview->samples.size(), "sample"),
                        report.preview_uri, sheet.width, sheet.height);
  }
  for (const std::string& sentence : report.advice) text += '\n' + sentence + '\n';
  RETURN_IF_ERROR(names.status());
  return text;
}

}  // namespace millrace::cli
