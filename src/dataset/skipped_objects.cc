#include "dataset/skipped_objects.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dataset/dataset.h"
#include "dataset/sample_objects.h"
#include "transfer/other_files.h"

namespace millrace {

void SkippedObjects::Add(std::string_view key, std::string_view why) {
  ++count_;
  if (named_.size() < kMaxNamed) named_.push_back({.key = std::string(key), .why = why});
}

std::vector<SkippedObjects::Group> SkippedObjects::Grouped(size_t most_names) const {
  std::vector<Group> groups;
  for (const SkippedObject& object : named_) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.why == object.why; });
    if (group == groups.end()) group = groups.insert(groups.end(), {.why = object.why, .count = 0, .first = {}});
    if (group->count++ < most_names) group->first.push_back(object.key);
  }
  return groups;
}

absl::Status AddOtherFiles(const DatasetPlace& data, const std::stop_token& stop, SkippedObjects* skipped) {
  if (!data.names.empty() || data.join != nullptr || !data.store->traits().is_folder()) return absl::OkStatus();
  std::string folder = data.store->Uri(data.Key(""));
  if (!folder.ends_with('/')) folder += '/';
  return ForEachOtherFile(folder, {.recursive = true, .follow_links = true, .stop = stop}, [&](const OtherFile& file) {
    const bool selected = data.selection == nullptr || data.selection->Contains(file.name);
    if (file.kind != OtherFile::Kind::kTemporary && selected) skipped->Add(file.name, KindText(file.kind));
    return absl::OkStatus();
  });
}

absl::StatusOr<SkippedObjects> ListSkipped(const Dataset& dataset, const std::stop_token& stop) {
  if (dataset.is_manifest()) return SkippedObjects();
  ASSIGN_OR_RETURN(const Listing listing, ListingOf(dataset.index()));
  SampleObjects objects(dataset.place(), stop, listing);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<IndexedObject> object, objects.Next());
    if (!object) break;
  }
  SkippedObjects skipped = objects.skipped();
  RETURN_IF_ERROR(AddOtherFiles(dataset.place(), stop, &skipped));
  return skipped;
}

}  // namespace millrace
