#include "dataset/dataset_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/counted.h"
#include "dataset/duplicate_keys.h"
#include "dataset/sample_objects.h"
#include "dataset/shard_names.h"
#include "shard/token_format.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

constexpr size_t kShownPairs = 3;

std::vector<std::string> WarningsOfClasses(const Index& index) {
  const std::vector<std::string>& classes = index.class_names();
  const bool splits = classes.size() > 1 && std::all_of(classes.begin(), classes.end(), [](const std::string& name) {
                        return !SplitWord(name).empty();
                      });
  if (!splits) return {};
  return {
      fmt::format("the classes are {}, which are names of parts of a data set: give the URI of one of these folders, "
                  "whose own folders are the classes then",
                  fmt::join(classes, ", "))};
}

struct FormatName {
  std::string_view extension;
  std::string_view name;
};

// These are the formats of images that are not decoded.
constexpr FormatName kOtherFormats[] = {
    {"avif", "AVIF"},     {"heic", "HEIF"},      {"heif", "HEIF"},      {"jxl", "JPEG XL"},    {"jp2", "JPEG 2000"},
    {"j2k", "JPEG 2000"}, {"jpx", "JPEG 2000"},  {"exr", "OpenEXR"},    {"hdr", "Radiance"},   {"psd", "Photoshop"},
    {"svg", "SVG"},       {"dng", "camera raw"}, {"cr2", "camera raw"}, {"nef", "camera raw"}, {"arw", "camera raw"},
    {"dcm", "DICOM"},     {"ppm", "Netpbm"},     {"pgm", "Netpbm"},     {"pbm", "Netpbm"},     {"tga", "Targa"},
    {"ico", "ICO"},       {"dds", "DDS"},        {"pcx", "PCX"},        {"sgi", "SGI"},        {"qoi", "QOI"},
    {"pnm", "Netpbm"},    {"cur", "CUR"},        {"icns", "ICNS"},      {"jxr", "JPEG XR"}};

std::vector<std::string> WarningsOfFields(const Index& index) {
  std::vector<std::string> warnings;
  for (const std::string& field : index.field_names()) {
    const std::string_view format = UndecodedFormat(field);
    if (format.empty()) continue;
    warnings.push_back(fmt::format(
        "the field '{}' holds images of a format that is not decoded ({}): convert them to JPEG, PNG or WebP, "
        "or read them as bytes",
        field, format));
  }
  return warnings;
}

absl::StatusOr<std::vector<std::string>> WarningsOfShards(const DatasetPlace& place, const Index& index) {
  if (!place.names.empty() || (place.selection != nullptr && place.selection->NamesAll()))
    return std::vector<std::string>();
  ShardNames names(place.selection.get());
  IndexedObject object;
  std::string plain;  // the last name without a number that others may begin with
  std::string first_again;
  uint64_t again = 0;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    if (index.kind() != DataKind::kTokens || !IsMegatronIdx(object.key)) names.Add(object.key);
    if (plain.empty() || !object.key.starts_with(plain)) plain = object.key;
    if (index.kind() != DataKind::kTfRecord || object.key == plain) continue;
    if (WithoutTfRecordNumber(object.key) == plain && again++ == 0) first_again = object.key;
  }
  std::vector<std::string> warnings = names.Warnings();
  if (again > 0) {
    warnings.push_back(
        fmt::format("'{}' lies beside the shard of that name without a number, as wget leaves a second download{}; if "
                    "it is one, its samples come twice: remove it",
                    first_again, again > 1 ? fmt::format(", and {} more do", again - 1) : ""));
  }
  return warnings;
}

}  // namespace

std::string_view UndecodedFormat(std::string_view field) {
  const std::string_view extension = field.substr(field.rfind('.') + 1);
  const auto* const format = std::find_if(std::begin(kOtherFormats), std::end(kOtherFormats),
                                          [&](const FormatName& one) { return one.extension == extension; });
  return format == std::end(kOtherFormats) ? std::string_view() : format->name;
}

bool IsPhotoFormat(std::string_view field) {
  const std::string_view format = UndecodedFormat(field);
  return format == "HEIF" || format == "AVIF" || format == "JPEG XL" || format == "camera raw" || format == "Netpbm" ||
         format == "JPEG 2000";
}

absl::StatusOr<std::vector<std::string>> WarningsOfNames(const DatasetPlace& place, const Index& index) {
  std::vector<std::string> warnings;
  if (index.kind() == DataKind::kRawObjects) {
    warnings = WarningsOfClasses(index);
  } else {
    ASSIGN_OR_RETURN(warnings, WarningsOfShards(place, index));
  }
  std::vector<std::string> of_fields = WarningsOfFields(index);
  std::move(of_fields.begin(), of_fields.end(), std::back_inserter(warnings));
  return warnings;
}

std::vector<std::string> WarningsOfSideFiles(const SkippedObjects& skipped, uint64_t shards) {
  constexpr uint64_t kUsual = 4;  // a shard: img2dataset writes two, others a checksum and an index
  std::vector<std::string> warnings;
  for (const SkippedObjects::Group& group : skipped.Grouped(1)) {
    if (group.why == kContainerBesideImages) {
      warnings.push_back(
          fmt::format("{} of many samples, such as '{}', {} passed over beside images; if they are the "
                      "samples, put them into a folder of their own",
                      Counted(group.count, "file"), group.first.front(), group.count == 1 ? "is" : "are"));
    } else if (group.why == kMisnamedShard) {
      warnings.push_back(fmt::format("{} by {} may be {}, such as '{}', and {} passed over: rename {}, or join pieces",
                                     Counted(group.count, "file"), group.count == 1 ? "its name" : "their names",
                                     group.count == 1 ? "a shard" : "shards", group.first.front(),
                                     group.count == 1 ? "is" : "are", group.count == 1 ? "it" : "them"));
    } else if (group.why == SkippedObjects::kCompanion && group.count > kUsual * (shards + 1)) {
      warnings.push_back(
          fmt::format("{} lie beside {}, such as '{}', and are passed over; if they are the samples, put "
                      "them into a folder of their own",
                      Counted(group.count, "file"), Counted(shards, "shard"), group.first.front()));
    }
  }
  return warnings;
}

absl::StatusOr<std::vector<std::string>> WarningsOfKeys(const Index& index, MemoryBudget& memory,
                                                        const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const DuplicateKeys found, FindDuplicateKeys(index, memory, {.progress = nullptr, .stop = stop}));
  if (found.count == 0) return std::vector<std::string>();
  std::vector<std::string> pairs;
  IndexedObject first;
  IndexedObject again;
  for (const DuplicateKey& pair : found.examples) {
    if (pairs.size() == kShownPairs) break;
    RETURN_IF_ERROR(index.LookupObject(pair.first.object, &first));
    RETURN_IF_ERROR(index.LookupObject(pair.again.object, &again));
    pairs.push_back(fmt::format("'{}' in {} and {}", pair.first.key, JoinedName(first.key), JoinedName(again.key)));
  }
  return std::vector<std::string>{fmt::format(
      "{} {} the key of a sample before: {}{}; if these are copies, remove them", Counted(found.count, "sample"),
      found.count == 1 ? "has" : "have", fmt::join(pairs, ", "), found.count > pairs.size() ? ", ..." : "")};
}

}  // namespace millrace
