#include "shard/tar_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/crypto.h"
#include "base/utf8.h"
#include "shard/sample_name.h"
#include "shard/tar_key.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxLabelBytes = 20;  // a 64-bit number

std::string_view TrimSpace(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool IsLabel(const ShardField& field) {
  return field.name == kClassField && field.length <= kMaxLabelBytes;
}

}  // namespace

absl::Status AddTarField(const TarMember& member, std::string field, ShardSample* sample) {
  for (const ShardField& other : sample->fields) {
    if (other.name == field) {
      return absl::DataLossError(fmt::format("offset {}: sample '{}' has the field '{}' twice (member '{}')",
                                             member.data_offset, sample->key, field, member.name));
    }
  }
  if (sample->fields.size() == kMaxSampleFields) {
    return absl::InvalidArgumentError(
        fmt::format("offset {}: sample '{}' has more than {} fields; its key ends at the first dot of the names: use "
                    "names with one "
                    "dot, or with another character in its place",
                    member.data_offset, sample->key, kMaxSampleFields));
  }
  sample->fields.push_back({.name = std::move(field), .offset = member.data_offset, .length = member.size});
  return absl::OkStatus();
}

absl::Status TarSampleScanner::Feed(ByteSpan chunk, ShardSink sink) {
  const uint64_t chunk_end = chunk_offset_ + chunk.size();
  while (true) {
    if (in_field_) {
      const ShardField& field = sample_.fields.back();
      if (field.offset + field.length > chunk_end) break;
      HashUntil(chunk, field.offset + field.length);
      EndField();
    }
    if (reader_.position() >= chunk_end) break;
    ASSIGN_OR_RETURN(const TarReader::Event event, reader_.Advance(chunk.subspan(reader_.position() - chunk_offset_)));
    if (event == TarReader::Event::kNeedBytes) break;
    RETURN_IF_ERROR(event == TarReader::Event::kEnd ? Emit(sink) : AddMember(chunk, sink));
  }
  HashUntil(chunk, chunk_end);
  chunk_offset_ = chunk_end;
  return absl::OkStatus();
}

absl::Status TarSampleScanner::AddMember(ByteSpan chunk, ShardSink sink) {
  const TarMember& member = reader_.member();
  if (!member.regular && !member.link) return absl::OkStatus();
  std::optional<SampleName> name = SplitSampleName(member.name);
  if (!name) {
    if (member.regular && skipped_.unnamed++ == 0) skipped_.first_unnamed = member.name;
    return absl::OkStatus();
  }
  if (member.link) {
    if (skipped_.links++ == 0) skipped_.first_link = member.name;
    return absl::OkStatus();
  }
  std::string unescaped;
  if (reader_.key_is_escaped() && name->key.find('%') != std::string_view::npos) {
    unescaped = UnescapeTarKey(name->key);
    name->key = unescaped;
  }
  if (sample_.fields.empty() || sample_.key != name->key) {
    RETURN_IF_ERROR(Emit(sink));
    sample_.key = name->key;
    running_crc_ = 0;
    hashed_until_ = member.data_offset;
  }
  HashUntil(chunk, member.data_offset);  // what lies between two fields belongs to the span
  RETURN_IF_ERROR(AddTarField(member, std::move(name->field), &sample_));
  in_field_ = true;
  return absl::OkStatus();
}

void TarSampleScanner::HashUntil(ByteSpan chunk, uint64_t offset) {
  if (sample_.fields.empty() || offset <= hashed_until_) return;
  const ByteSpan bytes = chunk.subspan(hashed_until_ - chunk_offset_, offset - hashed_until_);
  running_crc_ = Crc32c(bytes, running_crc_);
  if (in_field_ && IsLabel(sample_.fields.back())) label_.append(AsText(bytes));
  hashed_until_ = offset;
}

void TarSampleScanner::EndField() {
  in_field_ = false;
  sample_.crc32c = running_crc_;
  if (!IsLabel(sample_.fields.back())) return;
  const std::string_view label = TrimSpace(WithoutByteOrderMark(label_));
  if (label.find_first_not_of("0123456789") == std::string_view::npos) sample_.label = label;
}

absl::Status TarSampleScanner::Emit(ShardSink sink) {
  if (sample_.fields.empty()) return absl::OkStatus();
  const uint64_t begin = sample_.fields.front().offset;
  sample_.span = {.offset = begin, .length = sample_.fields.back().offset + sample_.fields.back().length - begin};
  RETURN_IF_ERROR(sink(sample_));
  sample_.fields.clear();
  sample_.label.clear();
  label_.clear();
  return absl::OkStatus();
}

absl::Status TarSampleScanner::Finish(ShardSink sink) {
  RETURN_IF_ERROR(reader_.Finish(chunk_offset_));
  return Emit(sink);
}

}  // namespace millrace
