#include "pipeline/class_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "decode/label.h"
#include "shard/data_kind.h"
#include "shard/sample_name.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr size_t kMostRead = 16;
constexpr uint64_t kScanned = 1 << 16;  // samples at a time

bool CountsAll(const Index& index) {
  const std::vector<ClassCount>& classes = index.class_counts();
  const uint64_t counted = std::accumulate(classes.begin(), classes.end(), uint64_t{0},
                                           [](uint64_t sum, const ClassCount& one) { return sum + one.samples; });
  return counted == index.size();
}

// Returns samples whose class is stored and not counted.
absl::StatusOr<std::vector<IndexedSample>> Uncounted(const Subset& part, size_t most) {
  std::vector<IndexedSample> found;
  const uint64_t size = part.index().size();
  for (uint64_t first = 0; first < size && found.size() < most; first += kScanned) {
    RETURN_IF_ERROR(
        part.index().Scan(first, std::min(size, first + kScanned), [&](uint64_t sample, const IndexedSample& entry) {
          if (entry.label || found.size() == most) return;
          if (part.selection && !part.selection->Contains(sample)) return;
          found.push_back(entry);
        }));
  }
  return found;
}

absl::Status CheckOne(const Subset& part, const IndexedSample& entry, const LabelSpec& spec,
                      const std::stop_token& stop) {
  const auto field = std::find_if(entry.fields.begin(), entry.fields.end(),
                                  [](const IndexedField& one) { return one.name == kClassField; });
  if (field == entry.fields.end() || field->is_inline || field->length > kMaxLabelBytes) return absl::OkStatus();
  IndexedObject object;
  RETURN_IF_ERROR(part.index().LookupObject(entry.object, &object));
  std::string bytes(field->length, '\0');
  if (!bytes.empty()) {
    GetOptions options;
    options.range = {.offset = entry.span.offset + field->offset, .length = field->length};
    options.if_match = object.etag;
    options.stop = stop;
    const DatasetPlace& place = part.dataset->place();
    RETURN_IF_ERROR(
        GetBlocking(*place.store, place.Key(object.key), AsWritableBytes(bytes), std::move(options)).status());
  }
  return Annotate(ParseLabel(AsBytes(bytes), spec).status(),
                  fmt::format("{}, sample '{}': field '{}'", object.key, entry.key, kClassField));
}

}  // namespace

absl::Status CheckClasses(const LoaderPlan& plan, const std::stop_token& stop) {
  if (plan.options.bad_samples != BadSamples::kFail) return absl::OkStatus();
  for (const PlannedField& field : plan.fields) {
    const BatchField& wanted = field.wanted;
    if (wanted.kind != BatchField::Kind::kLabel || wanted.is_value() || wanted.field != kClassField ||
        !wanted.label.json_path.empty()) {
      continue;
    }
    for (const Subset& part : plan.source.parts()) {
      if (part.index().kind() != DataKind::kTar || CountsAll(part.index())) continue;
      // If no class is counted, they may be other numbers, and the first one shows it.
      ASSIGN_OR_RETURN(const std::vector<IndexedSample> samples,
                       Uncounted(part, part.index().has_labels() ? kMostRead : 1));
      for (const IndexedSample& entry : samples) RETURN_IF_ERROR(CheckOne(part, entry, wanted.label, stop));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
