#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/field_value.h"

/// Writes TFRecord, record by record. Pure: the same input gives the same bytes.

namespace millrace {

/// Appends a record. InvalidArgument if its data have more than kMaxRecordBytes.
absl::Status AppendTfRecord(std::string& out, ByteSpan data);

/// Appends a sample as a serialized tf.train.Example, for a record: its key is the feature `__key__`, its fields follow
/// in their order. Integers, floats and arrays of one dimension become int64_list and float_list if these hold the
/// exact value; all others are a bytes_list. InvalidArgument for a field called `__key__`, or more than
/// kMaxSampleFields features.
absl::Status AppendTfExample(std::string& out, std::string_view key, std::span<const ValueField> fields);

}  // namespace millrace
