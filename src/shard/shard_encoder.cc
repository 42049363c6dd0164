#include "shard/shard_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/counted.h"
#include "base/utf8.h"
#include "shard/byte_gatherer.h"
#include "shard/mds_writer.h"
#include "shard/recordio_format.h"
#include "shard/recordio_writer.h"
#include "shard/sample_gatherer.h"
#include "shard/sample_name.h"
#include "shard/shard_sample.h"
#include "shard/tar_encoder.h"
#include "shard/tfrecord_format.h"
#include "shard/tfrecord_writer.h"

namespace millrace {

namespace {

constexpr uint64_t kAnyBytes = uint64_t{1} << 62;

absl::Status Refused(const SampleShape& sample, std::string_view format, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("sample '{}' cannot be written to {}: {}", sample.key, format, why));
}

// Returns the bytes of all values; nullopt when no record can hold them.
std::optional<uint64_t> ValuesBytes(const SampleShape& sample) {
  uint64_t bytes = 0;
  for (const FieldShape& field : sample.fields) {
    if (field.length > kMaxRecordBytes) return std::nullopt;
    bytes += field.length;
  }
  return bytes <= kMaxRecordBytes ? std::optional(bytes) : std::nullopt;
}

constexpr std::string_view kAnotherWay = "leave it out (--field names the fields to pack), or choose another --format";

constexpr std::string_view kTooLarge = "it has more than 512 MiB";

class TfRecordEncoder final : public SampleGatherer {
 public:
  DataKind kind() const override { return DataKind::kTfRecord; }
  Holds holds() const override { return Holds::kSample; }
  bool IsExact() const override { return false; }
  bool KeepsNames() const override { return true; }
  bool KeysTellSamplesApart() const override { return false; }
  uint64_t MaxShardBytes() const override { return kAnyBytes; }

  absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const override {
    constexpr uint64_t kFeatureBytes = 24;  // about: five lengths and tags
    const std::optional<uint64_t> values = ValuesBytes(sample);
    if (!values) return Refused(sample, "TFRecord", kTooLarge);
    if (sample.fields.empty() || sample.fields.size() >= kMaxSampleFields) {
      return Refused(sample, "TFRecord",
                     fmt::format("it has {} fields, and 1 to {} can be", sample.fields.size(), kMaxSampleFields - 1));
    }
    uint64_t bytes = kTfRecordHeadBytes + kTfRecordFootBytes + kKeyFeature.size() + sample.key.size() + kFeatureBytes;
    for (const FieldShape& field : sample.fields) {
      if (field.name == kKeyFeature)
        return Refused(sample, "TFRecord", fmt::format("its field '{}' would be taken for its key", field.name));
      if (FirstNotUtf8(field.name) < field.name.size())
        return Refused(sample, "TFRecord", "the name of a field is not UTF-8");
      bytes += kFeatureBytes + field.name.size();
    }
    return bytes + *values;
  }
  uint64_t OverheadBytes(uint64_t /*samples*/) const override { return 0; }

 private:
  absl::Status BeginShard() override { return absl::OkStatus(); }
  absl::Status Encode(const std::string& key, std::span<const ValueField> fields, Sink out) override {
    example_.clear();
    record_.clear();
    RETURN_IF_ERROR(AppendTfExample(example_, key, fields));
    RETURN_IF_ERROR(Annotate(AppendTfRecord(record_, AsBytes(example_)), fmt::format("sample '{}'", key)));
    return out(AsBytes(record_));
  }
  absl::Status EndShard(Sink /*out*/) override { return absl::OkStatus(); }

  std::string example_;
  std::string record_;
};

class RecordIoEncoder final : public SampleGatherer {
 public:
  DataKind kind() const override { return DataKind::kRecordIo; }
  Holds holds() const override { return Holds::kSample; }
  bool IsExact() const override { return false; }
  bool KeepsNames() const override { return false; }
  bool KeysTellSamplesApart() const override { return false; }
  uint64_t MaxShardBytes() const override { return kAnyBytes; }

  absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const override {
    const std::optional<uint64_t> values = ValuesBytes(sample);
    if (!values) return Refused(sample, "RecordIO", kTooLarge);
    size_t labels = 0;
    for (const FieldShape& field : sample.fields) {
      if (field.name == kClassField && field.type != FieldType::kInt && field.type != FieldType::kFloat)
        return Refused(sample, "RecordIO", "its field 'cls' is not a number");
      if (field.name == kClassField && field.value && !IsRecordIoLabel(AsBytes(*field.value))) {
        return Refused(sample, "RecordIO",
                       fmt::format("its field 'cls' is {}, which is not a number that a float of 32 bits holds; {}",
                                   *field.value, kAnotherWay));
      }
      if (field.name == kLabelsField && field.is_empty_array)
        return Refused(sample, "RecordIO",
                       fmt::format("its field 'labels' is an array without values; {}", kAnotherWay));
      labels += field.name == kClassField || field.name == kLabelsField ? 1 : 0;
    }
    if (labels > 1 || sample.fields.size() != labels + 1) {
      const std::string_view label = labels > 0 ? kClassField : "label=cls";
      return Refused(sample, "RecordIO",
                     fmt::format("a record holds one field and maybe a label ('{}' or '{}'), and it has {} and {}; "
                                 "name those to pack, such as --field jpg --field {}",
                                 kClassField, kLabelsField, Counted(sample.fields.size() - labels, "field"),
                                 Counted(labels, "label"), label));
    }
    return kRecordIoHeadBytes + kIrHeaderBytes + RecordIoPadded(*values);
  }
  uint64_t OverheadBytes(uint64_t /*samples*/) const override { return 0; }
  std::string Companion() const override { return index_; }

 private:
  absl::Status BeginShard() override {
    index_.clear();
    number_ = 0;
    bytes_ = 0;
    return absl::OkStatus();
  }
  absl::Status Encode(const std::string& key, std::span<const ValueField> fields, Sink out) override {
    data_.clear();
    record_.clear();
    RETURN_IF_ERROR(AppendMxnetSample(data_, key, number_, fields));
    RETURN_IF_ERROR(Annotate(AppendRecordIo(record_, AsBytes(data_)), fmt::format("sample '{}'", key)));
    AppendRecordIoIndexLine(index_, number_++, bytes_);
    bytes_ += record_.size();
    return out(AsBytes(record_));
  }
  absl::Status EndShard(Sink /*out*/) override { return absl::OkStatus(); }

  std::string data_;
  std::string record_;
  std::string index_;
  uint64_t number_ = 0;
  uint64_t bytes_ = 0;
};

class MdsEncoder final : public SampleGatherer {
 public:
  explicit MdsEncoder(std::vector<MdsColumn> columns)
      : columns_(std::move(columns)), head_bytes_(MdsShardWriter(columns_).bytes()), shard_(columns_) {}

  DataKind kind() const override { return DataKind::kMds; }
  Holds holds() const override { return Holds::kShard; }
  bool IsExact() const override { return false; }
  bool KeepsNames() const override { return true; }
  bool KeysTellSamplesApart() const override { return false; }
  uint64_t MaxShardBytes() const override { return kMaxMdsShardBytes; }
  uint64_t MaxShardSamples() const override { return kMaxMdsSamples; }

  absl::StatusOr<uint64_t> SampleBytes(const SampleShape& sample) const override {
    if (!ValuesBytes(sample)) return Refused(sample, "MDS", kTooLarge);
    if (FirstNotUtf8(sample.key) < sample.key.size()) return Refused(sample, "MDS", "its key is not UTF-8");
    uint64_t bytes = 2 * sizeof(uint32_t) + sample.key.size();
    for (const FieldShape& field : sample.fields) {
      const MdsColumn wanted = MdsColumnFor(field.name, field.type, field.image);
      const auto column =
          std::find_if(columns_.begin(), columns_.end(), [&](const MdsColumn& c) { return c.name == field.name; });
      if (column == columns_.end()) {
        return Refused(
            sample, "MDS",
            fmt::format("samples have the same columns there, and field '{0}' is not in the first sample; name "
                        "the fields that all have, and give equivalent ones one name: --field jpg "
                        "--field {1}=jpg",
                        field.name, field.NameInSource()));
      }
      if (!Fits(*column, wanted)) {
        return Refused(
            sample, "MDS",
            fmt::format("samples have the same columns there, and field '{0}' is \"{1}\" where the first has \"{2}\"; "
                        "a name that says its type makes all alike: --field {3}=jpg for images, --field {3}=data for "
                        "bytes",
                        field.name, wanted.encoding, column->encoding, field.NameInSource()));
      }
      if (field.is_empty_array) {
        return Refused(sample, "MDS",
                       fmt::format("its field '{}' is an array without values; {}", field.name, kAnotherWay));
      }
      if (field.value && !MdsColumnHolds(*column, AsBytes(*field.value))) {
        return Refused(sample, "MDS",
                       fmt::format("its field '{}' is {}, which does not fit a column of the encoding \"{}\"; {}",
                                   field.name, field.value->substr(0, 100), column->encoding, kAnotherWay));
      }
      bytes += column->fixed_size == 0 ? sizeof(uint32_t) + field.length : column->fixed_size;
    }
    if (sample.fields.size() + 1 == columns_.size()) return bytes;
    return Refused(
        sample, "MDS",
        fmt::format("all samples have the same columns there, and it has {} fields where the first sample has "
                    "{}; name the fields that all samples have: --field NAME",
                    sample.fields.size(), columns_.size() - 1));
  }
  uint64_t OverheadBytes(uint64_t /*samples*/) const override { return head_bytes_; }

 private:
  // Images of any kind are read alike.
  static bool Fits(const MdsColumn& column, const MdsColumn& wanted) {
    return column.encoding == wanted.encoding || (IsImageEncoding(column.encoding) && IsImageEncoding(wanted.encoding));
  }

  absl::Status BeginShard() override {
    shard_ = MdsShardWriter(columns_);
    return absl::OkStatus();
  }
  absl::Status Encode(const std::string& key, std::span<const ValueField> fields, Sink /*out*/) override {
    return shard_.Add(key, fields);
  }
  absl::Status EndShard(Sink out) override {
    const std::string head = shard_.Head();
    RETURN_IF_ERROR(out(AsBytes(head)));
    return out(AsBytes(shard_.data()));
  }

  const std::vector<MdsColumn> columns_;
  const uint64_t head_bytes_;
  MdsShardWriter shard_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardEncoder>> MakeShardEncoder(DataKind kind, const SampleShape& first) {
  if (kind == DataKind::kTar) return std::make_unique<TarEncoder>();
  if (kind == DataKind::kTfRecord) return std::make_unique<TfRecordEncoder>();
  if (kind == DataKind::kRecordIo) return std::make_unique<RecordIoEncoder>();
  if (kind != DataKind::kMds) return absl::InternalError("raw objects and token files are not written");
  ASSIGN_OR_RETURN(std::vector<MdsColumn> columns, MdsColumnsOf(first));
  return std::make_unique<MdsEncoder>(std::move(columns));
}

absl::StatusOr<std::vector<MdsColumn>> MdsColumnsOf(const SampleShape& sample) {
  std::vector<MdsColumn> columns;
  for (const FieldShape& field : sample.fields) columns.push_back(MdsColumnFor(field.name, field.type, field.image));
  absl::StatusOr<std::vector<MdsColumn>> all = MdsColumnsOf(std::move(columns));
  if (!all.ok()) return Refused(sample, "MDS", ToStd(all.status().message()));
  return all;
}

}  // namespace millrace
