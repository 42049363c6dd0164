#include "pipeline/sample_read.h"

#include <fmt/format.h>

#include <utility>

#include "base/buffer.h"
#include "dataset/field_of_sample.h"
#include "store/blocking.h"

namespace millrace {

namespace {

absl::Status Fetch(const Dataset& dataset, const IndexedSample& entry, MutableByteSpan into,
                   const std::stop_token& stop) {
  IndexedObject object;
  RETURN_IF_ERROR(dataset.index().LookupObject(entry.object, &object));
  GetOptions get;
  get.range = entry.span;
  get.if_match = object.etag;
  if (dataset.has_checksums()) get.checksums = {{entry.span, entry.crc32c}};
  get.stop = stop;
  return GetBlocking(dataset.store(), dataset.StoreKey(object.key), into, std::move(get)).status();
}

}  // namespace

absl::StatusOr<SampleValues> ReadSample(const Dataset& dataset, uint64_t sample, const std::stop_token& stop) {
  IndexedSample entry;
  RETURN_IF_ERROR(dataset.index().Lookup(sample, &entry));
  Buffer bytes(entry.span.length);
  if (entry.span.length > 0) RETURN_IF_ERROR(Fetch(dataset, entry, bytes.span(), stop));
  SampleValues values{.key = entry.key, .fields = {}};
  std::string scratch;
  for (const IndexedField& field : entry.fields) {
    const absl::StatusOr<ByteSpan> value = ValueOf(field, std::as_const(bytes).span(), &scratch);
    if (!value.ok()) return Annotate(value.status(), fmt::format("{}, sample '{}'", dataset.uri(), entry.key));
    values.fields.push_back({.name = std::string(field.name),
                             .type = TypeOfEncoding(field.encoding),
                             .value = std::string(AsText(*value))});
  }
  return values;
}

}  // namespace millrace
