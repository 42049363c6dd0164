#include "pack/shard_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "store/blocking.h"

namespace millrace {

namespace {

// What is wrong with a sample, not with the store or the network, on which every other sample depends as well.
bool IsAboutSample(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
         absl::IsOutOfRange(status);
}

std::set<uint64_t> PositionsOfBad(const std::map<uint64_t, SkippedSample>& bad) {
  std::set<uint64_t> positions;
  for (const auto& [position, sample] : bad) positions.insert(positions.end(), position);
  return positions;
}

}  // namespace

absl::Status ShardPacker::Pack(uint64_t shard, std::vector<SkippedSample>* skipped) {
  Bad bad;
  while (true) {
    const absl::Status status = Write(shard, bad);
    out_.reset();
    if (!status.ok()) progress_(-emitted_);
    if (status.ok()) break;
    if (!work_.skip_bad || !IsAboutSample(status)) return status;
    const size_t before = bad.size();
    RETURN_IF_ERROR(FindBad(PositionsOf(shard), &bad));
    if (bad.size() == before) return status;  // it is about something else
  }
  for (auto& [position, sample] : bad) skipped->push_back(std::move(sample));
  return absl::OkStatus();
}

absl::Status ShardPacker::Write(uint64_t shard, const Bad& bad) {
  const Positions positions = PositionsOf(shard);
  const std::set<uint64_t> left_out = PositionsOfBad(bad);
  emitted_ = 0;
  std::vector<uint64_t> bytes;
  RETURN_IF_ERROR(Measure(positions, left_out, &bytes));
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), encoder_.OverheadBytes(bytes.size()));
  const PackDestination& destination = work_.destination;
  ObjectStore& store = *destination.location().store;
  PutOptions put;
  put.content_type = "application/x-tar";
  put.stop = stop_;
  const std::string name = destination.ShardName(shard);
  ASSIGN_OR_RETURN(out_, PieceStream::Open(store, destination.location().Key(name), total, memory_, put));
  fragment_ = FragmentWriter();
  scanner_ = TarSampleScanner();
  expected_.clear();
  const auto sink = [this](ByteSpan piece) { return Emit(piece); };
  const auto index = [this](const ShardSample& sample) { return Index(sample); };
  RETURN_IF_ERROR(encoder_.Begin(bytes, sink));
  RETURN_IF_ERROR(Encode(positions, left_out));
  RETURN_IF_ERROR(encoder_.End(sink));
  RETURN_IF_ERROR(scanner_.Finish(index));
  ASSIGN_OR_RETURN(const ObjectInfo info, out_->Commit());
  std::vector<SkippedSample> skipped;
  for (const auto& [position, sample] : bad) skipped.push_back(sample);
  const std::string fragment = fragment_.Finish({.key = name, .size = total, .etag = info.etag}, skipped);
  put.content_type.clear();
  return PutBlocking(store, destination.FragmentKey(shard, total, info.etag), AsBytes(fragment), put).status();
}

// The bytes of each sample that will be in the shard.
absl::Status ShardPacker::Measure(Positions positions, const std::set<uint64_t>& left_out,
                                  std::vector<uint64_t>* bytes) {
  IndexedSample sample;
  std::optional<std::string> last_key;
  for (uint64_t position = positions.begin; position < positions.end; ++position) {
    if (left_out.contains(position)) continue;
    RETURN_IF_ERROR(work_.source.index().Lookup(work_.order.At(position), &sample));
    RETURN_IF_ERROR(ShapeOf(sample, work_.classes, &packed_));
    if (!left_out.empty() && last_key == sample.key && encoder_.KeysTellSamplesApart()) {
      return absl::InvalidArgumentError(
          fmt::format("without the bad samples, two in a row have the key '{}', which in a shard would make them one; "
                      "rename one of them",
                      sample.key));
    }
    last_key = sample.key;
    ASSIGN_OR_RETURN(const uint64_t one, encoder_.SampleBytes(packed_.shape));
    bytes->push_back(one);
  }
  return absl::OkStatus();
}

absl::Status ShardPacker::Encode(Positions positions, const std::set<uint64_t>& left_out) {
  SampleReader reader(work_.source, work_.order, positions, left_out, memory_, stop_);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<SampleReader::Part> part, reader.Next());
    if (!part) return absl::OkStatus();
    RETURN_IF_ERROR(AddPart(*part));
  }
}

absl::Status ShardPacker::AddPart(const SampleReader::Part& part) {
  const auto sink = [this](ByteSpan piece) { return Emit(piece); };
  if (part.offset == 0) {
    RETURN_IF_ERROR(ShapeOf(*part.sample, work_.classes, &packed_));
    expected_.emplace_back(packed_.shape.key, packed_.shape.fields.size());
    RETURN_IF_ERROR(encoder_.BeginSample(packed_.shape, sink));
    for (const std::string& text : packed_.inline_texts) RETURN_IF_ERROR(encoder_.Add(AsBytes(text), sink));
  }
  const uint64_t end = part.offset + part.bytes.size();
  for (const IndexedField& field : packed_.stored) {
    const uint64_t from = std::max(part.offset, field.offset);
    const uint64_t to = std::min(end, field.offset + field.length);
    if (from < to) RETURN_IF_ERROR(encoder_.Add(part.bytes.subspan(from - part.offset, to - from), sink));
  }
  return absl::OkStatus();
}

absl::Status ShardPacker::Emit(ByteSpan bytes) {
  RETURN_IF_ERROR(scanner_.Feed(bytes, [this](const ShardSample& sample) { return Index(sample); }));
  RETURN_IF_ERROR(out_->Append(bytes));
  emitted_ += static_cast<int64_t>(bytes.size());
  progress_(static_cast<int64_t>(bytes.size()));
  return absl::OkStatus();
}

absl::Status ShardPacker::Index(const ShardSample& sample) {
  if (expected_.empty() || expected_.front() != std::pair{sample.key, sample.fields.size()}) {
    return absl::InvalidArgumentError(
        fmt::format("sample '{}': readers of the shard would not find it by that key and its fields; rename it",
                    expected_.empty() ? sample.key : expected_.front().first));
  }
  expected_.pop_front();
  fragment_.Add(sample);
  return absl::OkStatus();
}

// Reads the shard's samples without writing them. Where something cannot be read, one by one.
absl::Status ShardPacker::FindBad(Positions positions, Bad* bad) {
  const std::set<uint64_t> known = PositionsOfBad(*bad);
  while (positions.begin < positions.end) {
    Positions suspects;
    {
      SampleReader reader(work_.source, work_.order, positions, known, memory_, stop_);
      absl::StatusOr<std::optional<SampleReader::Part>> part = reader.Next();
      while (part.ok() && *part) part = reader.Next();
      if (part.ok()) return absl::OkStatus();
      if (!IsAboutSample(part.status())) return part.status();
      suspects = reader.Suspects();
    }
    for (uint64_t position = suspects.begin; position < suspects.end; ++position) {
      SkippedSample found;
      RETURN_IF_ERROR(ReadAlone(position, &found));
      if (!found.why.empty()) bad->emplace(position, std::move(found));
    }
    positions.begin = suspects.end;
  }
  return absl::OkStatus();
}

absl::Status ShardPacker::ReadAlone(uint64_t position, SkippedSample* found) {
  const std::set<uint64_t> none;
  SampleReader reader(work_.source, work_.order, {.begin = position, .end = position + 1}, none, memory_, stop_);
  absl::StatusOr<std::optional<SampleReader::Part>> part = reader.Next();
  while (part.ok() && *part) part = reader.Next();
  if (part.ok()) return absl::OkStatus();
  if (!IsAboutSample(part.status())) return part.status();
  IndexedSample sample;
  RETURN_IF_ERROR(work_.source.index().Lookup(work_.order.At(position), &sample));
  found->key = sample.key;
  found->why = ToStd(part.status().message());
  return absl::OkStatus();
}

}  // namespace millrace
