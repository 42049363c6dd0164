#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/field_value.h"

/// Writes RecordIO of dmlc and MXNet, record by record. Pure: the same input gives the same bytes.

namespace millrace {

/// Appends a record, in parts if its data hold the magic number. InvalidArgument when they have more than
/// kMaxRecordBytes, or a part would be too long.
absl::Status AppendRecordIo(std::string& out, ByteSpan data);

/// Returns whether a value of the field `cls` can be a record's label: a number that a float of 32 bits holds.
bool IsRecordIoLabel(ByteSpan value);

/// Appends the data of a sample, for a record: MXNet's header with the label from the field `cls` or the labels from
/// the field `labels`, and `number` as id; then the one other field. Without a label there is no header. Neither key
/// nor names of fields are kept. InvalidArgument if the sample is not of that shape, or if a label is not a number of
/// 32 bits.
absl::Status AppendMxnetSample(std::string& out, std::string_view key, uint64_t number,
                               std::span<const ValueField> fields);

/// Appends the line of a record to the `.idx` beside a shard: `offset` is that of the record in the shard.
void AppendRecordIoIndexLine(std::string& out, uint64_t number, uint64_t offset);

}  // namespace millrace
