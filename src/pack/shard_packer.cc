#include "pack/shard_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/hex.h"
#include "decode/image_format.h"
#include "decode/reencode.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"
#include "store/blocking.h"

namespace millrace {

namespace {

// Returns true if an object is not there any more, or is another one by now.
absl::StatusOr<bool> Differs(const Dataset& source, const IndexedObject& object) {
  const absl::StatusOr<ObjectInfo> info = HeadBlocking(source.store(), source.StoreKey(object.key));
  if (info.ok()) return info->size != object.size || info->etag != object.etag;
  if (absl::IsNotFound(info.status())) return true;
  return info.status();
}

// The plan has checked the names, so it is a fault of this program: nothing is committed.
absl::Status NotFoundBack(std::string_view key) {
  return absl::InternalError(fmt::format(
      "sample '{}': readers of the shard would not find it by its key and fields; please report this", key));
}

// Adds the remedy to the error of a sample that the format cannot hold; only its values have shown that.
absl::Status WithRemedy(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(fmt::format(
      "{}; --field names the fields to pack, another --format may hold them, and --skip-bad leaves out such "
      "samples",
      ToStd(status.message())));
}

// The fields that readers of a shard must find in a sample. If the format keeps no names, only their number counts.
template <typename Field>
uint64_t HashNames(std::string_view key, const std::vector<Field>& fields, bool keeps_names) {
  std::vector<std::string_view> names;
  for (const Field& field : fields) names.emplace_back(keeps_names ? std::string_view(field.name) : "");
  std::sort(names.begin(), names.end());
  Xxh3Stream hash;
  hash.Update(AsBytes(keeps_names ? key : ""));
  for (const std::string_view name : names) {
    hash.UpdateLe64(name.size());
    hash.Update(AsBytes(name));
  }
  return hash.Digest().low;
}

std::set<uint64_t> PositionsOfBad(const std::map<uint64_t, SkippedSample>& bad) {
  std::set<uint64_t> positions;
  for (const auto& [position, sample] : bad) positions.insert(positions.end(), position);
  return positions;
}

}  // namespace

absl::Status ShardPacker::Pack(uint64_t shard, std::vector<SkippedSample>* skipped) {
  Bad bad;
  ASSIGN_OR_RETURN(const PackDestination::Claim claim, work_.destination.ClaimShard(shard));
  if (!claim.granted) return absl::OkStatus();
  while (true) {
    absl::Status status = Write(shard, claim.stale_etag, bad);
    out_.reset();
    if (!status.ok()) progress_(-emitted_);
    if (status.ok()) break;
    if (!work_.skip_bad || !MayBeAboutSample(status)) return status;
    const size_t before = bad.size();
    RETURN_IF_ERROR(FindBad(PositionsOf(shard), &bad));
    if (bad.size() == before) return status;  // it is about something else
  }
  for (auto& [position, sample] : bad) skipped->push_back(std::move(sample));
  return absl::OkStatus();
}

absl::Status ShardPacker::Write(uint64_t shard, const std::string& stale_etag, const Bad& bad) {
  const Positions positions = PositionsOf(shard);
  const std::set<uint64_t> left_out = PositionsOfBad(bad);
  emitted_ = 0;
  digest_.Reset();
  name_ = work_.destination.names().Shard(shard);
  if (encoder_ == nullptr) {
    ASSIGN_OR_RETURN(encoder_, MakeShardEncoder(work_.destination.format(), work_.first));
  }
  ASSIGN_OR_RETURN(const std::optional<uint64_t> total, Measure(positions, left_out));
  ASSIGN_OR_RETURN(out_, Open(shard, stale_etag, total));
  turns_.acquire();
  const absl::Status written = WriteBytes(positions, left_out);
  turns_.release();
  RETURN_IF_ERROR(written);
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> info, Commit(shard, stale_etag));
  return info ? WriteFragment(shard, *info, bad) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> ShardPacker::Open(uint64_t shard, const std::string& stale_etag,
                                                                std::optional<uint64_t> bytes) {
  const Location& to = work_.destination.location();
  const std::string key = to.Key(work_.destination.names().Shard(shard));
  PutOptions put;
  put.content_type = work_.destination.format() == DataKind::kTar ? "application/x-tar" : "application/octet-stream";
  const bool replaces = !stale_etag.empty() && to.store->traits().holds_if_match;
  put.only_if_absent = !replaces;
  put.if_match = replaces ? stale_etag : "";
  put.stop = stop_;
  if (bytes) return StreamWriter::Open(*to.store, key, put, *bytes, memory_);
  return to.store->Write(key, put);
}

absl::Status ShardPacker::WriteFragment(uint64_t shard, const ObjectInfo& info, const Bad& bad) {
  const PackDestination& destination = work_.destination;
  const PackNames& names = destination.names();
  const Location& to = destination.location();
  PutOptions put;
  put.stop = stop_;
  if (const std::string companion = encoder_->Companion(); !companion.empty())
    RETURN_IF_ERROR(PutBlocking(*to.store, to.Key(names.Companion(shard)), AsBytes(companion), put).status());
  std::vector<SkippedSample> skipped;
  for (const auto& [position, sample] : bad) skipped.push_back(sample);
  const auto bytes = static_cast<uint64_t>(emitted_);
  const std::string fragment = fragment_.Finish({.key = name_, .size = bytes, .etag = info.etag}, skipped);
  return PutBlocking(*to.store, to.Key(names.Fragment(shard, bytes, info.etag)), AsBytes(fragment), put).status();
}

absl::Status ShardPacker::WriteBytes(Positions positions, const std::set<uint64_t>& left_out) {
  fragment_ = FragmentWriter();
  scanner_ = MakeShardScanner(work_.destination.format());
  expected_.clear();
  samples_ = 0;
  const auto emit = [this](ByteSpan piece) { return Emit(piece); };
  RETURN_IF_ERROR(encoder_->Begin(emit));
  RETURN_IF_ERROR(Encode(positions, left_out));
  RETURN_IF_ERROR(encoder_->End(emit));
  RETURN_IF_ERROR(scanner_->Finish([this](const ShardSample& sample) { return Index(sample); }));
  return expected_.empty() ? absl::OkStatus() : NotFoundBack(packed_.shape.key);
}

// nullopt if the job is not in progress any more: nothing was written then.
absl::StatusOr<std::optional<ObjectInfo>> ShardPacker::Commit(uint64_t shard, const std::string& stale_etag) {
  ASSIGN_OR_RETURN(const bool in_progress, work_.destination.IsInProgress());
  if (!in_progress) return std::nullopt;
  const auto adopt = [&] { return work_.destination.Adopt(shard, static_cast<uint64_t>(emitted_), digest_.Digest()); };
  if (!stale_etag.empty()) {
    // It may belong to another run at the same job, which is about to write its fragment. With these bytes it is not
    // replaced, since an index may have its ETag by now.
    absl::StatusOr<ObjectInfo> there = adopt();
    if (there.ok() || !absl::IsAlreadyExists(there.status())) return there;
    if (!work_.destination.location().store->traits().holds_if_match)
      RETURN_IF_ERROR(work_.destination.RemoveStale(shard, stale_etag));
  }
  absl::StatusOr<ObjectInfo> info = out_->Commit();
  if (absl::IsAlreadyExists(info.status()) || absl::IsFailedPrecondition(info.status())) return adopt();
  return info;
}

// The bytes that the shard will have; nothing when only its end will tell.
absl::StatusOr<std::optional<uint64_t>> ShardPacker::Measure(Positions positions, const std::set<uint64_t>& left_out) {
  IndexedSample sample;
  std::optional<std::string> last_key;
  uint64_t total = 0;
  uint64_t samples = 0;
  bool exact = encoder_->IsExact();
  for (uint64_t position = positions.begin; position < positions.end; ++position) {
    if (left_out.contains(position)) continue;
    RETURN_IF_ERROR(work_.source.index().Lookup(work_.order.At(position), &sample));
    RETURN_IF_ERROR(ShapeOf(sample, work_.view, &packed_));
    if (!left_out.empty() && last_key == sample.key && encoder_->KeysTellSamplesApart()) {
      return absl::InvalidArgumentError(
          fmt::format("without the bad samples, two in a row have the key '{}', which in a shard would make them one; "
                      "rename one of them",
                      sample.key));
    }
    last_key = sample.key;
    exact = exact && packed_.is_exact;
    ASSIGN_OR_RETURN(const uint64_t one, encoder_->SampleBytes(packed_.shape));
    total += one;
    ++samples;
  }
  return exact ? std::optional(total + encoder_->OverheadBytes(samples)) : std::nullopt;
}

absl::Status ShardPacker::Encode(Positions positions, const std::set<uint64_t>& left_out) {
  SampleReader reader(work_.source, work_.order, positions, left_out, memory_, stop_);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<SampleReader::Part> part, reader.Next());
    if (!part) return absl::OkStatus();
    RETURN_IF_ERROR(WithRemedy(AddPart(*part, [this](ByteSpan piece) { return Emit(piece); })));
  }
}

absl::Status ShardPacker::AddPart(const SampleReader::Part& part, ShardEncoder::Sink out) {
  if (part.offset == 0) RETURN_IF_ERROR(ShapeOf(*part.sample, work_.view, &packed_));
  return packed_.is_exact ? AddStored(part, out) : AddConverted(part, out);
}

// Sets the samples that the scanner has to find from here on.
absl::Status ShardPacker::Expect(ShardEncoder::Sink out) {
  expected_.push_back(HashNames(packed_.shape.key, packed_.shape.fields, encoder_->KeepsNames()));
  return encoder_->BeginSample(packed_.shape, out);
}

absl::Status ShardPacker::AddStored(const SampleReader::Part& part, ShardEncoder::Sink out) {
  if (part.offset == 0) {
    RETURN_IF_ERROR(Expect(out));
    for (const FieldShape& field : packed_.shape.fields) {
      if (field.value) RETURN_IF_ERROR(encoder_->Add(AsBytes(*field.value), out));
    }
  }
  const uint64_t end = part.offset + part.bytes.size();
  const size_t inline_fields = packed_.shape.fields.size() - packed_.stored.size();
  for (size_t i = 0; i < packed_.stored.size(); ++i) {
    const IndexedField& field = packed_.stored[i];
    const uint64_t from = std::max(part.offset, field.offset);
    const uint64_t to = std::min(end, field.offset + field.length);
    const bool is_empty = field.length == 0 && part.offset == 0;
    if (from >= to && !is_empty) continue;
    const ByteSpan bytes = is_empty ? ByteSpan() : part.bytes.subspan(from - part.offset, to - from);
    RETURN_IF_ERROR(
        LookAtImage(packed_.shape.fields[inline_fields + i], field.length, is_empty ? 0 : from - field.offset, bytes));
    if (!is_empty) RETURN_IF_ERROR(encoder_->Add(bytes, out));
  }
  return absl::OkStatus();
}

// With skip_bad, a field that is called an image must begin as one. `bytes` are those from `offset` on of a value of
// `length`.
absl::Status ShardPacker::LookAtImage(const FieldShape& field, uint64_t length, uint64_t offset, ByteSpan bytes) {
  constexpr uint64_t kBegin = 16;
  if (!work_.skip_bad || !IsPackedImage(field)) return absl::OkStatus();
  const size_t wanted = std::min(length, kBegin);
  if (offset == 0) begin_.clear();
  if (offset > 0 && begin_.size() == wanted) return absl::OkStatus();  // it has been looked at
  begin_.append(AsText(bytes.first(std::min(bytes.size(), wanted - begin_.size()))));
  if (begin_.size() < wanted || !absl::IsDataLoss(SniffImageFormat(AsBytes(begin_)).status())) return absl::OkStatus();
  const std::string_view shown = std::string_view(begin_).substr(0, 8);
  const std::string hex = HexEncode({reinterpret_cast<const uint8_t*>(shown.data()), shown.size()});
  return absl::DataLossError(fmt::format("{}: sample '{}', field '{}': not an image: {} bytes{}{}", work_.source.uri(),
                                         packed_.shape.key, field.name, length, hex.empty() ? "" : " that begin with ",
                                         hex));
}

// The values of a sample whose last part this is; nullopt before that.
absl::StatusOr<std::optional<std::vector<std::string>>> ShardPacker::Converted(const SampleReader::Part& part) {
  ByteSpan span = part.bytes;
  if (part.offset > 0 || !part.last) {
    if (part.offset == 0) span_.clear();
    span_.append(AsText(part.bytes));
    if (!part.last) return std::nullopt;
    span = AsBytes(span_);
  }
  std::vector<std::string> values;
  for (const FieldShape& field : packed_.shape.fields) {
    if (field.value) values.push_back(*field.value);
  }
  for (const IndexedField& field : packed_.stored) {
    std::string& value = values.emplace_back();
    const absl::StatusOr<ByteSpan> found = FieldValue(field.encoding, span.subspan(field.offset, field.length), &value);
    if (!found.ok()) {
      return Annotate(found.status(),
                      fmt::format("{}: sample '{}', field '{}'", work_.source.uri(), part.sample->key, field.name));
    }
    const FieldShape& shape = packed_.shape.fields[values.size() - 1];
    RETURN_IF_ERROR(LookAtImage(shape, found->size(), 0, *found));
    std::optional<std::string> changed;
    if (!work_.view.images.empty() && IsPackedImage(shape)) {
      absl::StatusOr<std::optional<std::string>> image = ReencodeImage(*found, work_.view.images);
      if (!image.ok()) {
        return Annotate(image.status(),
                        fmt::format("{}: sample '{}', field '{}'", work_.source.uri(), part.sample->key, field.name));
      }
      changed = *std::move(image);
    }
    if (changed) {
      value = *std::move(changed);
    } else if (found->data() != AsBytes(value).data()) {
      value = AsText(*found);
    }
  }
  return values;
}

// Their lengths are known when all values are.
absl::Status ShardPacker::AddConverted(const SampleReader::Part& part, ShardEncoder::Sink out) {
  ASSIGN_OR_RETURN(const auto values, Converted(part));
  if (!values) return absl::OkStatus();
  for (size_t i = 0; i < values->size(); ++i) packed_.shape.fields[i].length = (*values)[i].size();
  RETURN_IF_ERROR(Expect(out));
  for (const std::string& value : *values) RETURN_IF_ERROR(encoder_->Add(AsBytes(value), out));
  return absl::OkStatus();
}

// Does the work of AddPart, but writes nothing. A part that cannot be converted, or that the format cannot hold, is
// bad.
absl::Status ShardPacker::CheckPart(const SampleReader::Part& part, Bad* bad) {
  if (bad->contains(part.position)) return absl::OkStatus();  // a later part of it
  const auto nowhere = [](ByteSpan) { return absl::OkStatus(); };
  if (part.offset == 0) {
    RETURN_IF_ERROR(encoder_->Begin(nowhere));
    expected_.clear();
  }
  absl::Status status = AddPart(part, nowhere);
  if (!absl::IsDataLoss(status) && !absl::IsInvalidArgument(status)) return status;
  bad->emplace(part.position, SkippedSample{.key = part.sample->key, .why = std::string(ToStd(status.message()))});
  return absl::OkStatus();
}

absl::Status ShardPacker::Emit(ByteSpan bytes) {
  RETURN_IF_ERROR(scanner_->Feed(bytes, [this](const ShardSample& sample) { return Index(sample); }));
  RETURN_IF_ERROR(out_->Append(bytes));
  digest_.Update(bytes);
  emitted_ += static_cast<int64_t>(bytes.size());
  progress_(static_cast<int64_t>(bytes.size()));
  return absl::OkStatus();
}

absl::Status ShardPacker::Index(const ShardSample& sample) {
  if (expected_.empty() || expected_.front() != HashNames(sample.key, sample.fields, encoder_->KeepsNames()))
    return NotFoundBack(sample.key.empty() ? packed_.shape.key : sample.key);
  expected_.pop_front();
  const uint64_t number = samples_++;
  if (!sample.key.empty() || encoder_->KeepsNames()) {
    fragment_.Add(sample);
  } else {
    ShardSample named = sample;
    named.key = RecordKey(name_, number);
    fragment_.Add(named);
  }
  return absl::OkStatus();
}

// Reads and converts the shard's samples without writing them. Where something cannot be read, one by one.
absl::Status ShardPacker::FindBad(Positions positions, Bad* bad) {
  const std::set<uint64_t> known = PositionsOfBad(*bad);
  return VisitSamples(
      work_.source, work_.order, positions, known, memory_, stop_,
      [&](const SampleReader::Part& part) { return CheckPart(part, bad); },
      [&](uint64_t position, const absl::Status& status) { return AddUnreadable(position, status, bad); });
}

absl::Status ShardPacker::AddUnreadable(uint64_t position, const absl::Status& status, Bad* bad) {
  if (!MayBeAboutSample(status)) return status;
  IndexedSample sample;
  RETURN_IF_ERROR(work_.source.index().Lookup(work_.order.At(position), &sample));
  if (!absl::IsDataLoss(status)) {
    ASSIGN_OR_RETURN(const bool gone, IsGoneOrChanged(sample.object));
    if (!gone) return status;
  }
  bad->emplace(position, SkippedSample{.key = sample.key, .why = std::string(ToStd(status.message()))});
  return absl::OkStatus();
}

std::string ShardPacker::UriOf(uint32_t object) const {
  IndexedObject found;
  if (!work_.source.index().LookupObject(object, &found).ok()) return work_.source.uri();
  return work_.source.store().Uri(work_.source.StoreKey(found.key));
}

// Returns true if an object is gone or replaced. Returns false if the source as a whole, or a part of it, is gone: a
// folder was unmounted, a bucket was deleted, a class was made again. Then the objects around it are gone, too.
absl::StatusOr<bool> ShardPacker::IsGoneOrChanged(uint32_t object) {
  constexpr uint32_t kAround = 4;                       // on each side
  const millrace::Index& index = work_.source.index();  // not the function of that name
  IndexedObject found;
  RETURN_IF_ERROR(index.LookupObject(object, &found));
  ASSIGN_OR_RETURN(const bool differs, Differs(work_.source, found));
  gone_[object] = differs;
  if (!differs) return false;
  const uint64_t first = object - std::min(object, kAround);
  const uint64_t end = std::min<uint64_t>(index.objects(), uint64_t{object} + kAround + 1);
  uint64_t intact = 0;
  uint64_t around = 0;
  for (uint64_t other = first; other < end; ++other) {
    if (other == object) continue;
    const auto key = static_cast<uint32_t>(other);
    auto known = gone_.find(key);
    if (known == gone_.end()) {
      RETURN_IF_ERROR(index.LookupObject(key, &found));
      ASSIGN_OR_RETURN(const bool other_differs, Differs(work_.source, found));
      known = gone_.emplace(key, other_differs).first;
    }
    ++around;
    intact += known->second ? 0 : 1;
  }
  if (2 * intact > around) return true;
  return absl::FailedPreconditionError(
      fmt::format("{}: is gone or was replaced, and so are {} of the {} objects around it: this is not a bad sample. "
                  "Check if all of the source is there, or index it again: millrace index {}",
                  UriOf(object), around - intact, around, work_.source.uri()));
}

}  // namespace millrace
