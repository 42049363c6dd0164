#include "shard/tar_outline.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "shard/sample_name.h"
#include "shard/tar_format.h"
#include "shard/tar_key.h"
#include "shard/tar_reader.h"
#include "shard/tar_samples.h"
#include "shard/wds_index.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxOutlinedSize = uint64_t{8} << 30;  // what the header itself can say

bool MakesSample(const TarMember& member) {
  return member.regular && SplitSampleName(member.name).has_value();
}

// Returns the member whose data follow the gap; nullopt if the gap is not made of headers that end there.
std::optional<TarMember> MemberBehind(ByteSpan gap, bool* escaped) {
  TarReader reader;
  while (reader.position() < gap.size()) {
    const absl::StatusOr<TarReader::Event> event = reader.Advance(gap.subspan(reader.position()));
    if (!event.ok() || *event != TarReader::Event::kMember) return std::nullopt;
    *escaped = reader.key_is_escaped();
    if (reader.member().data_offset == gap.size()) return reader.member();
    if (MakesSample(reader.member())) return std::nullopt;
  }
  return std::nullopt;
}

class TarOutliner {
 public:
  TarOutliner(const TarEnds& shard, ShardSink sink) : shard_(shard), sink_(sink) {}

  absl::Status Add(const WdsMember& member);
  absl::Status Finish();

 private:
  absl::Status CheckPlace(const WdsMember& member);
  absl::Status CheckTail() const;
  absl::Status Emit();

  const TarEnds& shard_;
  const ShardSink sink_;
  ShardSample sample_;  // no fields: none begun
  uint64_t end_ = 0;    // of the file before, with its padding
  bool escaped_ = false;
};

absl::Status TarOutliner::CheckPlace(const WdsMember& member) {
  const bool fits = member.size < kMaxOutlinedSize && member.offset <= shard_.shard_bytes &&
                    member.size <= shard_.shard_bytes - member.offset;
  if (!fits) {
    return absl::DataLossError(fmt::format("it says that '{}' has {} bytes from offset {} on, and the shard has {}",
                                           member.name, member.size, member.offset, shard_.shard_bytes));
  }
  const bool behind = member.offset % kTarBlock == 0 && member.offset >= end_ + kTarBlock;
  if (!behind) {
    return absl::DataLossError(
        fmt::format("it says that '{}' is at offset {}, where no file can begin", member.name, member.offset));
  }
  if (member.offset - end_ > kMaxTarGapBytes) {
    return absl::InvalidArgumentError(
        fmt::format("more than headers are in front of '{}' at offset {}", member.name, member.offset));
  }
  if (end_ > 0) return absl::OkStatus();
  if (member.offset > shard_.head.size()) return absl::DataLossError("the shard is shorter than its headers");
  const std::optional<TarMember> first = MemberBehind(shard_.head.first(member.offset), &escaped_);
  if (first && first->regular && first->name == member.name && first->size == member.size) return absl::OkStatus();
  return absl::DataLossError(fmt::format("the first file of the shard is not '{}' of {} bytes at offset {}",
                                         member.name, member.size, member.offset));
}

absl::Status TarOutliner::Add(const WdsMember& member) {
  std::optional<SampleName> name = SplitSampleName(member.name);
  if (!name) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPlace(member));
  end_ = member.offset + TarPadded(member.size);
  std::string unescaped;
  if (escaped_ && name->key.find('%') != std::string_view::npos) {
    unescaped = UnescapeTarKey(name->key);
    name->key = unescaped;
  }
  if (sample_.fields.empty() || sample_.key != name->key) {
    RETURN_IF_ERROR(Emit());
    sample_.key = name->key;
  }
  return AddTarField({.name = std::string(member.name), .data_offset = member.offset, .size = member.size},
                     std::move(name->field), &sample_);
}

absl::Status TarOutliner::Emit() {
  if (sample_.fields.empty()) return absl::OkStatus();
  const uint64_t begin = sample_.fields.front().offset;
  sample_.span = {.offset = begin, .length = sample_.fields.back().offset + sample_.fields.back().length - begin};
  RETURN_IF_ERROR(sink_(sample_));
  sample_.fields.clear();
  return absl::OkStatus();
}

// Behind the last file comes the end of the archive, and nothing more that makes a sample.
absl::Status TarOutliner::CheckTail() const {
  const uint64_t tail_offset = shard_.shard_bytes - shard_.tail.size();
  if (end_ < tail_offset)
    return absl::DataLossError(fmt::format("its last file ends at {}, and the shard at {}", end_, shard_.shard_bytes));
  if (end_ > shard_.shard_bytes) return absl::DataLossError("the shard ends within its last file");
  const ByteSpan rest = shard_.tail.subspan(end_ - tail_offset);
  TarReader reader;
  while (reader.position() < rest.size()) {
    const absl::StatusOr<TarReader::Event> event = reader.Advance(rest.subspan(reader.position()));
    if (!event.ok())
      return absl::DataLossError(fmt::format("no end of the archive follows its last file, at {}", end_));
    if (*event == TarReader::Event::kNeedBytes) break;
    if (*event == TarReader::Event::kMember && MakesSample(reader.member()))
      return absl::DataLossError(fmt::format("the shard also holds '{}'", reader.member().name));
  }
  if (reader.Finish(rest.size()).ok()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("no end of the archive follows its last file, at {}", end_));
}

absl::Status TarOutliner::Finish() {
  if (end_ == 0) return absl::InvalidArgumentError("it lists no samples");
  RETURN_IF_ERROR(CheckTail());
  return Emit();
}

}  // namespace

absl::Status OutlineTar(std::string_view wds_index, const TarEnds& shard, ShardSink sink) {
  TarOutliner outliner(shard, sink);
  RETURN_IF_ERROR(ForEachWdsMember(wds_index, [&](const WdsMember& member) { return outliner.Add(member); }));
  return outliner.Finish();
}

bool FitsTarMember(ByteSpan gap, TarFieldName name, uint64_t size) {
  bool escaped = false;
  const std::optional<TarMember> member = MemberBehind(gap, &escaped);
  if (!member || !member->regular || member->size != size) return false;
  const std::optional<SampleName> found = SplitSampleName(member->name);
  if (!found || found->field != name.field) return false;
  // The mark of escaped keys is in front of the first file.
  return found->key == name.key || UnescapeTarKey(found->key) == name.key;
}

}  // namespace millrace
