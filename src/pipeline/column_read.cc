#include "pipeline/column_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/size.h"
#include "dataset/changed_object.h"
#include "dataset/field_of_sample.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

// Represents a value that lies in an object.
struct StoredValue {
  size_t rank = 0;  // of the sample in the subset
  uint32_t object = 0;
  ByteRange range;
  std::string_view encoding;  // lives as long as the index
};

}  // namespace

absl::Status ScanSubset(const Subset& of, absl::FunctionRef<void(uint64_t, const IndexedSample&)> each) {
  if (of.size() == 0) return absl::OkStatus();
  std::array<uint64_t, 256> block{};
  uint64_t rank = 0;
  size_t used = block.size();
  const auto next = [&]() -> uint64_t {  // the universe, behind the last one
    if (rank == of.size()) return of.index().size();
    if (!of.selection) return rank;
    if (used == block.size()) {
      of.selection->Read(rank, std::span(block).first(std::min<uint64_t>(block.size(), of.size() - rank)));
      used = 0;
    }
    return block[used];
  };
  return of.index().Scan(of.SampleAt(0), of.SampleAt(of.size() - 1) + 1,
                         [&](uint64_t sample, const IndexedSample& entry) {
                           if (sample != next()) return;
                           ++rank;
                           ++used;
                           each(sample, entry);
                         });
}

absl::StatusOr<std::vector<std::optional<ColumnValue>>> ReadColumn(const Subset& of, std::string_view field,
                                                                   MemoryBudget& memory, const std::stop_token& stop) {
  const Dataset& dataset = *of.dataset;
  const std::vector<std::string>& names = of.index().field_names();
  if (std::find(names.begin(), names.end(), field) == names.end()) {
    return absl::InvalidArgumentError(
        fmt::format("{} has no field '{}'; its fields are: {}", dataset.uri(), field, fmt::join(names, ", ")));
  }
  std::vector<std::optional<ColumnValue>> values;
  values.reserve(of.size());
  std::vector<StoredValue> stored;
  absl::Status too_large;
  RETURN_IF_ERROR(ScanSubset(of, [&](uint64_t, const IndexedSample& entry) {
    std::optional<ColumnValue>& value = values.emplace_back();
    const auto found = std::find_if(entry.fields.begin(), entry.fields.end(),
                                    [field](const IndexedField& one) { return one.name == field; });
    if (found == entry.fields.end()) return;
    value = {.type = TypeOfEncoding(found->encoding), .value = std::string(found->inline_text)};
    if (found->is_inline) return;
    if (found->length > kMaxColumnValueBytes && too_large.ok()) {
      too_large = absl::InvalidArgumentError(
          fmt::format("{}, sample '{}': the field '{}' has {}; samples are chosen by fields of at most {}",
                      dataset.uri(), entry.key, field, FormatSize(found->length), FormatSize(kMaxColumnValueBytes)));
    }
    stored.push_back({.rank = values.size() - 1,
                      .object = entry.object,
                      .range = {.offset = entry.span.offset + found->offset, .length = found->length},
                      .encoding = found->encoding});
  }));
  RETURN_IF_ERROR(too_large);
  size_t asked = 0;
  IndexedObject object;
  std::optional<uint32_t> looked_up;
  const auto source = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (asked == stored.size()) return std::nullopt;
    const StoredValue& value = stored[asked++];
    if (looked_up != value.object) RETURN_IF_ERROR(of.index().LookupObject(value.object, &object));
    looked_up = value.object;
    ObjectReader::Request request;
    request.object = {.key = dataset.StoreKey(object.key), .size = object.size, .etag = object.etag};
    request.range = value.range;
    request.in_one = true;
    return request;
  };
  ObjectReader reader(dataset.store(), memory, source, stop);
  std::string scratch;
  for (const StoredValue& value : stored) {
    const absl::StatusOr<std::optional<ObjectReader::Piece>> piece = reader.Next();
    if (!piece.ok()) return SayIfChanged(piece.status(), dataset.uri());
    if (!*piece) return absl::InternalError("a reader ended before its last request");
    const IndexedField alone{.name = field,
                             .offset = 0,
                             .length = value.range.length,
                             .inline_text = {},
                             .is_inline = false,
                             .encoding = value.encoding};
    const absl::StatusOr<ByteSpan> bytes = ValueOf(alone, (*piece)->bytes, &scratch);
    RETURN_IF_ERROR(Annotate(bytes.status(), dataset.uri()));
    values[value.rank]->value = std::string(AsText(*bytes));
  }
  return values;
}

}  // namespace millrace
