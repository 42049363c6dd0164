#include "pipeline/image_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/counted.h"
#include "dataset/dataset_warnings.h"
#include "shard/data_kind.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

bool AsksForImages(const LoaderOptions& options) {
  return options.fields.empty() ||
         std::any_of(options.fields.begin(), options.fields.end(),
                     [](const BatchField& field) { return field.kind == BatchField::Kind::kImage; });
}

// The fields that make a sample one, besides images: those that are asked for by name. (The class of a raw object is
// its folder.)
std::vector<std::string> NamedFields(const LoaderOptions& options) {
  std::vector<std::string> names;
  for (const BatchField& field : options.fields) names.push_back(field.field);
  names.push_back(options.image_field);
  if (options.label) names.push_back(options.label->field);
  std::erase_if(names, [](const std::string& name) { return name.empty() || name == kClassField; });
  return names;
}

bool HasOneOf(const IndexedSample& entry, const std::vector<std::string>& fields) {
  return std::any_of(entry.fields.begin(), entry.fields.end(), [&](const IndexedField& field) {
    return std::find(fields.begin(), fields.end(), field.name) != fields.end();
  });
}

// An image that is not decoded is no other kind of file: it is missing.
bool HoldsOtherImage(const IndexedSample& entry) {
  return std::any_of(entry.fields.begin(), entry.fields.end(),
                     [](const IndexedField& field) { return !UndecodedFormat(field.name).empty(); });
}

// Samples that were left out.
struct LeftOut {
  uint64_t samples = 0;
  std::map<std::string, uint64_t, std::less<>> kinds;  // objects by their fields
  std::string first;

  void Add(const IndexedSample& entry) {
    for (const IndexedField& field : entry.fields) {
      if (field.is_inline) continue;
      if (samples == 0 && first.empty()) first = fmt::format("'{}' ({})", entry.key, field.name);
      ++kinds[std::string(field.name)];
    }
    ++samples;
  }

  std::string Text(const Subset& part) const {
    constexpr size_t kShownKinds = 8;
    std::vector<std::pair<std::string, uint64_t>> sorted(kinds.begin(), kinds.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::vector<std::string> shown;
    for (const auto& [kind, count] : sorted) {
      if (shown.size() < kShownKinds) shown.push_back(fmt::format("{} {}", count, kind));
    }
    return fmt::format(
        "{} of {} without an image {} left out: {}{}, such as {}; to keep those of a kind, ask for it as a field",
        samples, Counted(part.size(), "sample"), samples == 1 ? "is" : "are", fmt::join(shown, ", "),
        sorted.size() > shown.size() ? ", ..." : "", first);
  }
};

}  // namespace

absl::StatusOr<ImageSamples> OnlyImageSamples(const Source& source, const LoaderOptions& options) {
  ImageSamples found{.source = source, .left_out = {}};
  if (source.tokens() != nullptr || !AsksForImages(options)) return found;
  std::vector<Subset> parts = source.parts();
  for (Subset& part : parts) {
    const Index& index = part.index();
    if (index.kind() != DataKind::kRawObjects || index.image_fields().empty() ||
        !index.SomeLack(index.image_fields())) {
      continue;
    }
    std::vector<std::string> fields = NamedFields(options);
    fields.insert(fields.end(), index.image_fields().begin(), index.image_fields().end());
    const bool labelled = part.dataset->labels() != nullptr;
    LeftOut left_out;
    uint64_t bytes = 0;
    Selection::Builder kept(index.size());
    RETURN_IF_ERROR(index.Scan(0, index.size(), [&](uint64_t sample, const IndexedSample& entry) {
      if (part.selection && !part.selection->Contains(sample)) return;
      const bool kept_by_labels = labelled && entry.in_labels_file;
      if (!kept_by_labels && !HasOneOf(entry, fields) && !HoldsOtherImage(entry)) return left_out.Add(entry);
      kept.Add(sample);
      bytes += entry.span.length;
    }));
    if (left_out.samples == 0 || left_out.samples == part.size()) continue;
    found.left_out.push_back((parts.size() > 1 ? part.dataset->uri() + ": " : "") + left_out.Text(part));
    Subset images(*part.dataset, std::move(kept).Finish(), bytes);
    images.class_name = part.class_name;
    part = std::move(images);
  }
  if (!found.left_out.empty()) found.source = Source(std::move(parts));
  return found;
}

}  // namespace millrace
