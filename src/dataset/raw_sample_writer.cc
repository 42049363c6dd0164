#include "dataset/raw_sample_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/number.h"
#include "base/utf8.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"

namespace millrace {

absl::Status RawSampleWriter::Begin(const FolderJoin* join, const IndexedObject& object) {
  ASSIGN_OR_RETURN(raw_, SampleOfObject(join, object));
  class_text_.clear();
  return absl::OkStatus();
}

ByteSpan RawSampleWriter::TakeClass(ByteSpan bytes, uint64_t offset) {
  const uint64_t fields_end = raw_.class_of ? raw_.class_of->offset : UINT64_MAX;
  const size_t of_fields = std::min<uint64_t>(bytes.size(), fields_end - std::min(fields_end, offset));
  class_text_ += AsText(bytes.subspan(of_fields));
  return bytes.first(of_fields);
}

absl::Status RawSampleWriter::Add(bool class_read, std::optional<uint32_t> crc, IndexWriter& writer) {
  fields_.clear();
  for (const RawSample::Field& field : raw_.fields)
    fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
  values_.clear();
  std::string_view label;
  if (class_read) {
    ASSIGN_OR_RETURN(label, AddClassOfFile());
  } else if (raw_.class_of) {
    fields_.push_back({.name = kClassField, .offset = raw_.class_of->offset, .length = raw_.class_of->length});
  } else {
    label = ClassFolder(raw_.key);
  }
  if (raw_.class_of) {
    numbered_ = raw_.key;
  } else if (!label.empty()) {
    by_folder_ = raw_.key;
  }
  if (!numbered_.empty() && !by_folder_.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("the class of '{}' is a number in the file {}.cls, and that of '{}' its folder; write such a file "
                    "for all samples, or remove them",
                    numbered_, numbered_, by_folder_));
  }
  NewSample sample{.key = raw_.key, .fields = fields_, .crc32c = crc, .label = label, .values = values_};
  if (class_read) sample.class_file_bytes = raw_.class_of->length;
  return writer.AddSample(sample);
}

// Adds the class of a file, and returns the label.
absl::StatusOr<std::string_view> RawSampleWriter::AddClassOfFile() {
  const std::string_view text = ToStd(absl::StripAsciiWhitespace(ToAbsl(WithoutByteOrderMark(class_text_))));
  const std::optional<int64_t> number = ParseNumber<int64_t>(text);
  if (!number) {
    return absl::InvalidArgumentError(fmt::format(
        "{}.cls holds no whole number; write the number of the class into it, or name the file otherwise", raw_.key));
  }
  class_text_ = fmt::format("{}", *number);
  values_.push_back({.name = kClassField, .text = class_text_, .encoding = encoding::kInt});
  return number < 0 ? std::string_view() : class_text_;
}

absl::Status RawSampleWriter::AddListed(const ManifestSamples& manifest, const IndexedObject& object,
                                        std::optional<uint32_t> crc, IndexWriter& writer) {
  ASSIGN_OR_RETURN(const std::optional<ManifestSample> sample, manifest.Find(object));
  if (!sample) return absl::InternalError("the manifest does not list it");
  fields_.clear();
  for (const RawSample::Field& field : sample->fields)
    fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
  values_.clear();
  for (const ManifestValue& value : sample->values)
    values_.push_back({.name = value.name, .text = value.text, .encoding = value.encoding});
  return Annotate(
      writer.AddSample(
          {.key = sample->key, .fields = fields_, .crc32c = crc, .label = sample->label, .values = values_}),
      fmt::format("{}: {}", manifest.place().uri, sample->line));
}

}  // namespace millrace
