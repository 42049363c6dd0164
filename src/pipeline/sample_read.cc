#include "pipeline/sample_read.h"

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/size.h"
#include "dataset/changed_object.h"
#include "dataset/field_of_sample.h"
#include "store/blocking.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

absl::Status Fetch(const Dataset& dataset, const IndexedSample& entry, MutableByteSpan into,
                   const std::stop_token& stop) {
  IndexedObject object;
  RETURN_IF_ERROR(dataset.index().LookupObject(entry.object, &object));
  GetOptions get;
  get.range = entry.span;
  get.if_match = object.etag;
  if (entry.crc32c) get.checksums = {{entry.span, *entry.crc32c}};
  get.whole = !entry.crc32c && entry.span == ByteRange{.offset = 0, .length = object.size};
  get.stop = stop;
  return SayIfChanged(GetBlocking(dataset.store(), dataset.StoreKey(object.key), into, std::move(get)).status(),
                      dataset.uri());
}

absl::StatusOr<SampleValues> ValuesOf(const Dataset& dataset, const IndexedSample& entry, ByteSpan bytes) {
  SampleValues values{.key = entry.key, .fields = {}};
  std::string scratch;
  for (const IndexedField& field : entry.fields) {
    const absl::StatusOr<ByteSpan> value = ValueOf(field, bytes, &scratch);
    if (!value.ok()) return Annotate(value.status(), fmt::format("{}, sample '{}'", dataset.uri(), entry.key));
    values.fields.push_back({.name = std::string(field.name),
                             .type = TypeOfEncoding(field.encoding),
                             .value = std::string(AsText(*value))});
  }
  return values;
}

}  // namespace

absl::StatusOr<SampleValues> ReadSample(const Dataset& dataset, uint64_t sample, MemoryBudget& memory,
                                        const std::stop_token& stop) {
  IndexedSample entry;
  RETURN_IF_ERROR(dataset.index().Lookup(sample, &entry));
  const Reservation room = memory.TryReserve(entry.span.length);
  if (!room) {
    return absl::ResourceExhaustedError(
        fmt::format("{}, sample '{}': has {}, and of the process's memory of {} are {} in use", dataset.uri(),
                    entry.key, FormatSize(entry.span.length), FormatSize(memory.limit()), FormatSize(memory.used())));
  }
  Buffer bytes(entry.span.length);
  if (entry.span.length > 0) RETURN_IF_ERROR(Fetch(dataset, entry, bytes.span(), stop));
  return ValuesOf(dataset, entry, std::as_const(bytes).span());
}

absl::StatusOr<std::vector<SampleValues>> ReadSamples(const Dataset& dataset, std::span<const uint64_t> samples,
                                                      MemoryBudget& memory, const std::stop_token& stop) {
  std::deque<IndexedSample> asked;  // whose bytes have not come
  size_t next = 0;
  const auto source = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (next == samples.size()) return std::nullopt;
    IndexedSample& entry = asked.emplace_back();
    RETURN_IF_ERROR(dataset.index().Lookup(samples[next++], &entry));
    IndexedObject object;
    RETURN_IF_ERROR(dataset.index().LookupObject(entry.object, &object));
    ObjectReader::Request request;
    request.object = {.key = dataset.StoreKey(object.key), .size = object.size, .etag = object.etag};
    request.range = entry.span;
    if (entry.crc32c && entry.span.length > 0) request.checksums = {{entry.span, *entry.crc32c}};
    request.in_one = true;
    return request;
  };
  ObjectReader reader(dataset.store(), memory, source, stop);
  std::vector<SampleValues> values;
  values.reserve(samples.size());
  while (values.size() < samples.size()) {
    const absl::StatusOr<std::optional<ObjectReader::Piece>> next_piece = reader.Next();
    if (!next_piece.ok()) return SayIfChanged(next_piece.status(), dataset.uri());
    const std::optional<ObjectReader::Piece>& piece = *next_piece;
    if (!piece) return absl::InternalError("a reader ended before its last request");
    ASSIGN_OR_RETURN(SampleValues sample, ValuesOf(dataset, asked.front(), piece->bytes));
    values.push_back(std::move(sample));
    asked.pop_front();
  }
  return values;
}

}  // namespace millrace
