#include "dataset/index_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/log.h"
#include "dataset/build_listing.h"
#include "dataset/folder_join.h"
#include "dataset/index_reuse.h"
#include "dataset/mds_check.h"
#include "dataset/object_scan.h"
#include "dataset/objects_ahead.h"
#include "dataset/progress.h"
#include "dataset/raw_sample_writer.h"
#include "dataset/sample_groups.h"
#include "dataset/shard_outlines.h"
#include "dataset/token_files.h"
#include "shard/sample_name.h"
#include "shard/shard_scanner.h"
#include "store/blocking.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

// An object that was asked for, or is being scanned.
struct Scanned {
  IndexedObject object;
  std::optional<IndexReuse::Known> reused;                    // nothing of it is read then
  bool is_manifest = false;                                   // nothing of it is read then
  bool is_listed = false;                                     // nothing of it is read: the listing is enough
  std::shared_ptr<ShardOutlines::Outline> outline = nullptr;  // only a little of it is read then

  bool IsRead() const { return !reused && !is_manifest && !is_listed && outline == nullptr; }
};

// Returns the reads for raw objects. If an older index has classes that were read from files, they are read, so that no
// sample lacks its class.
RawReads ReadsFor(const BuildOptions& options) {
  RawReads reads = options.raw;
  const Index* const older = options.reuse;
  if (older == nullptr || older->kind() != DataKind::kRawObjects || options.manifest != nullptr) return reads;
  const std::vector<std::string>& fields = older->field_names();
  const bool numbers = std::find(fields.begin(), fields.end(), kClassField) != fields.end() &&
                       older->class_names().empty() && !older->classes_unread();
  reads.classes = reads.classes || numbers;
  return reads;
}

constexpr uint64_t kMaxParts = 64;  // of the data that one build reads
constexpr uint64_t kMaxNoted = 3;   // shards that are read although something is noted of them

class IndexBuilder {
 public:
  IndexBuilder(Runtime& runtime, const DatasetPlace& data, OpenIndexFn open_index, const BuildOptions& options)
      : data_(data),
        memory_(runtime.memory()),
        manifest_(options.manifest),
        skip_bad_(options.skip_bad),
        may_read_(options.reads),
        raw_reads_(ReadsFor(options)),
        options_(options),
        stop_(options.stop),
        open_index_(open_index),
        progress_(options.progress),
        listing_(MakeListing(data, options)),
        objects_(*listing_, MakeReuse(options)),
        token_files_(data, memory_, options.tokens, options.stop),
        mds_indexes_(data, options.stop),
        outlines_(data, memory_, *listing_, options.stop),
        scan_(memory_, [this](const ShardSample& sample,
                              std::string_view key) { return AddShardSample(sample, key, sample.crc32c); }),
        reads_(
            *data.store, memory_, [this] { return NextObject(); }, options.stop) {}

  absl::StatusOr<BuiltIndex> Run();
  /// The number of shards that are in parts, so that they need not be read again.
  uint64_t kept_shards() const { return parts_ ? parts_->kept_objects() : 0; }

 private:
  absl::Status ScanError() const;
  IndexReuse* MakeReuse(const BuildOptions& options) {
    std::vector<const Index*> olds = options.parts;
    if (options.reuse != nullptr) olds.insert(olds.begin(), options.reuse);
    return olds.empty() ? nullptr : &reuse_.emplace(olds, options.tokens, raw_reads_, options.same, data_.join.get());
  }
  absl::StatusOr<std::optional<ObjectReader::Request>> NextObject();
  absl::StatusOr<ByteRange> RangeToRead(const IndexedObject& object) const;
  absl::Status BeginScan(bool checked);
  absl::Status AddPiece(const ObjectReader::Piece& piece, bool* enough);
  absl::Status EndObject();
  absl::Status EndReusedObject();
  absl::Status EndReadObject();
  absl::Status EndListedObject();
  absl::Status EndOutlinedObject();
  absl::Status ReadInPlace();
  // Returns true if the samples before the damage are kept.
  bool KeepsWhatCame() const { return skip_bad_ && scan_.damaged(); }
  void ReportDamage();
  absl::Status AddShardSample(const ShardSample& sample, std::string_view key, std::optional<uint32_t> crc);
  absl::Status Begin();
  absl::Status AddToPart(const IndexedObject& object);
  absl::Status NoSamples() const;
  // True for the .idx of a pair of token files; its bytes are not among those of the data set
  // (SampleObjects::total_bytes).
  bool IsIdx(const IndexedObject& object) const {
    return objects_.kind() == DataKind::kTokens && IsMegatronIdx(object.key);
  }
  std::string FrontUri() const { return data_.store->Uri(data_.Key(scanning_.front().object.key)); }

  const DatasetPlace& data_;
  MemoryBudget& memory_;
  const ManifestSamples* const manifest_;  // null: none
  const bool skip_bad_;
  const bool may_read_;
  const RawReads raw_reads_;
  const BuildOptions& options_;
  const std::stop_token stop_;
  const OpenIndexFn open_index_;
  ProgressMeter progress_;
  std::optional<IndexReuse> reuse_;
  const std::unique_ptr<ObjectSource> listing_;
  ObjectsAhead objects_;
  TokenFiles token_files_;  // of token files only
  MdsIndexes mds_indexes_;  // of MDS only
  ShardOutlines outlines_;

  std::deque<Scanned> scanning_;                               // asked for, in order; the first is being scanned
  uint64_t done_bytes_ = 0;                                    // of those before it
  std::map<std::string, std::optional<uint64_t>> mds_shards_;  // as MdsIndexes::Check takes them; of MDS only

  std::unique_ptr<IndexWriter> writer_;
  std::optional<PartCollector> parts_;  // of what is read; of shards only
  BuildReport report_;
  ObjectScan scan_;
  uint64_t refused_outlines_ = 0;
  RawSampleWriter raw_;                 // of raw objects
  std::vector<NewSampleField> fields_;  // reused

  ObjectReader reads_;  // last: its callbacks end before the rest goes
};

absl::StatusOr<std::optional<ObjectReader::Request>> IndexBuilder::NextObject() {
  ASSIGN_OR_RETURN(std::optional<ObjectsAhead::Object> next, objects_.Next());
  if (!next) return std::nullopt;
  const IndexedObject& object = next->indexed;
  ObjectReader::Request request{.object = {.key = data_.Key(object.key), .size = object.size, .etag = object.etag}};
  const bool is_manifest = manifest_ != nullptr && request.object.key == manifest_->place().info.key;
  if (!may_read_ && !next->reused && !is_manifest) {
    return absl::FailedPreconditionError(fmt::format("the older index does not know '{}' as it is now", object.key));
  }
  std::shared_ptr<ShardOutlines::Outline> outline;
  if (options_.outlines && !next->reused && AreShards(objects_.kind()))
    outline = outlines_.Begin(objects_.kind(), object);
  // An object that is not read is one piece without bytes, which takes its turn among the others and costs no request.
  if (!next->reused && !is_manifest && outline == nullptr) {
    ASSIGN_OR_RETURN(request.range, RangeToRead(object));
  }
  // Without this, the index would pin damage of the transfer for good.
  request.begin_again = [this] { return scan_.holds(); };
  const bool raw = objects_.kind() == DataKind::kRawObjects;
  const bool is_listed = raw && !is_manifest && !raw_reads_.all && request.range.length == 0;
  scanning_.push_back({.object = std::move(next->indexed),
                       .reused = next->reused,
                       .is_manifest = is_manifest,
                       .is_listed = is_listed,
                       .outline = std::move(outline)});
  return request;
}

// Returns the range to read. The .idx of a pair is read with its .bin.
absl::StatusOr<ByteRange> IndexBuilder::RangeToRead(const IndexedObject& object) const {
  if (objects_.kind() != DataKind::kRawObjects || raw_reads_.all)
    return ByteRange{.offset = 0, .length = IsIdx(object) ? 0 : object.size};
  if (!raw_reads_.classes || manifest_ != nullptr) return ByteRange{};
  ASSIGN_OR_RETURN(const RawSample raw, SampleOfObject(data_.join.get(), object));
  if (!raw.class_of) return ByteRange{};
  return ByteRange{.offset = raw.class_of->offset, .length = raw.class_of->length};
}

absl::StatusOr<BuiltIndex> IndexBuilder::Run() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reads_.Next());
    if (!piece) break;
    if (writer_ == nullptr) RETURN_IF_ERROR(Begin());
    const Scanned& front = scanning_.front();
    bool enough = piece->last;
    if (front.IsRead()) RETURN_IF_ERROR(Annotate(AddPiece(*piece, &enough), FrontUri()));
    if (!enough) {
      progress_.Update(done_bytes_ + piece->offset + piece->bytes.size(), objects_.total_bytes());
      continue;
    }
    if (!piece->last) reads_.SkipRest();
    done_bytes_ += IsIdx(front.object) ? 0 : front.object.size;
    progress_.Update(done_bytes_, objects_.total_bytes());
    RETURN_IF_ERROR(EndObject());
    scanning_.pop_front();
  }
  IndexSummary summary;
  if (options_.only) {
    if (parts_) RETURN_IF_ERROR(parts_->Finish());
    if (writer_ == nullptr) return BuiltIndex();  // none was chosen
  } else {
    if (writer_ == nullptr || writer_->samples() == 0) return NoSamples();
    RETURN_IF_ERROR(mds_indexes_.Check(objects_.companions(), mds_shards_));
  }
  ASSIGN_OR_RETURN(summary, writer_->Finish());
  if (manifest_ != nullptr) --summary.objects;
  WarnOfLinks(report_.skipped_members);
  report_.keys_ascend = summary.keys_ascend;
  report_.skipped = listing_->skipped();
  if (manifest_ == nullptr && data_.join == nullptr) RETURN_IF_ERROR(AddOtherFiles(data_, stop_, &report_.skipped));
  return BuiltIndex{.summary = std::move(summary), .report = std::move(report_)};
}

absl::Status IndexBuilder::Begin() {
  ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, open_index_());
  writer_ = std::make_unique<IndexWriter>(objects_.kind(), std::move(out));
  if (manifest_ != nullptr && manifest_->quotes_are_text()) writer_->SetQuotesAreText();
  if (manifest_ == nullptr && AreShards(objects_.kind()))
    writer_->SetClassNames(options_.reuse != nullptr ? options_.reuse->own_class_names() : options_.class_names);
  if (options_.keep_part && manifest_ == nullptr && AreShards(objects_.kind()))
    parts_.emplace(objects_.kind(), memory_, options_.keep_part, /*required=*/options_.only != nullptr);
  return absl::OkStatus();
}

absl::Status IndexBuilder::NoSamples() const {
  if (manifest_ != nullptr)
    return absl::NotFoundError(fmt::format("{}: the manifest lists no objects", manifest_->place().uri));
  if (!report_.damaged.empty()) {
    const DamagedShard& first = report_.damaged.front();
    return absl::DataLossError(fmt::format("no samples under {}: {} damaged shards, the first of them '{}' ({})",
                                           data_.uri, report_.damaged.size(), first.key, first.why));
  }
  std::string why =
      objects_.kind() == DataKind::kTar ? "its shards hold no files such as 0001.jpg" : "its shards are empty";
  if (writer_ == nullptr) {
    why =
        "no shards (*.tar, *.tfrecord, *.rec, *.mds), pairs of .bin and .idx, or files such as class/0001.jpg (with "
        "--tokens: no *.npy or *.bin)";
    std::string key = data_.Key("");
    if (key.ends_with('/')) key.pop_back();
    if (!key.empty() && HeadBlocking(*data_.store, key).ok())
      why = "that is an object, whose name does not tell what it is (by an ending such as .tar)";
  }
  return absl::NotFoundError(fmt::format("no samples under {}: {}", data_.uri, why));
}

// Returns the error of the current object, with the remedy if it is a bad shard.
absl::Status IndexBuilder::ScanError() const {
  // To leave it out is no remedy if it is compressed as a whole, or of another kind.
  const bool nothing_read = absl::IsInvalidArgument(scan_.status()) && scan_.samples() == 0;
  if (!scan_.damaged() || nothing_read) return scan_.status();
  return absl::Status(scan_.status().code(),
                      fmt::format("{}; repair or replace it, or leave out its samples from there on: `millrace index` "
                                  "and `pack` take --skip-bad",
                                  ToStd(scan_.status().message())));
}

// Begins to scan an object. If it is `checked`, damage of the transfer is noticed at the end, and the object comes
// again.
absl::Status IndexBuilder::BeginScan(bool checked) {
  const Scanned& scanned = scanning_.front();
  if (objects_.kind() == DataKind::kRawObjects && manifest_ == nullptr) {
    RETURN_IF_ERROR(raw_.Begin(data_.join.get(), scanned.object));
  }
  if (objects_.kind() == DataKind::kMds) {
    bool hashed = false;
    ASSIGN_OR_RETURN(std::unique_ptr<ShardScanner> scanner, mds_indexes_.ScannerFor(scanned.object.key, &hashed));
    scan_.Begin(scanned.object.key, std::move(scanner), checked || hashed);
    return absl::OkStatus();
  }
  if (objects_.kind() != DataKind::kTokens) {
    scan_.Begin(scanned.object.key, MakeShardScanner(objects_.kind()), checked);
    return absl::OkStatus();
  }
  absl::Status damage;
  ASSIGN_OR_RETURN(std::unique_ptr<ShardScanner> scanner, token_files_.ScannerFor(scanned.object, &damage));
  if (damage.ok()) {
    scan_.Begin(scanned.object.key, std::move(scanner), checked);
    return absl::OkStatus();
  }
  // Damage of a pair is known before the first byte of its .bin.
  scan_.BeginDamaged(scanned.object.key, std::move(damage));
  return KeepsWhatCame() ? absl::OkStatus() : ScanError();
}

// Scans a piece. `*enough` is set if the rest of the object is of no use, since it is bad.
absl::Status IndexBuilder::AddPiece(const ObjectReader::Piece& piece, bool* enough) {
  if (piece.first) RETURN_IF_ERROR(BeginScan(piece.checked));
  const bool bad_from_the_start = scan_.damaged() && piece.first;
  scan_.Feed(raw_.TakeClass(piece.bytes, piece.offset));
  // If bytes were damaged on the way, they may not look like a shard any more. If there is a checksum, it tells at the
  // end.
  if (KeepsWhatCame() && (!piece.checked || bad_from_the_start)) *enough = true;
  return scan_.holds() || KeepsWhatCame() ? absl::OkStatus() : ScanError();
}

absl::Status IndexBuilder::EndObject() {
  const Scanned& scanned = scanning_.front();
  const IndexedObject& object = scanned.object;
  if (scanned.reused && !scanned.is_manifest) {
    RETURN_IF_ERROR(Annotate(EndReusedObject(), FrontUri()));
    ++report_.reused_objects;
  } else if (scanned.is_listed) {
    RETURN_IF_ERROR(Annotate(EndListedObject(), FrontUri()));
  } else if (scanned.outline != nullptr) {
    RETURN_IF_ERROR(EndOutlinedObject());
  } else if (scanned.IsRead()) {
    RETURN_IF_ERROR(EndReadObject());
  }
  if (objects_.kind() == DataKind::kMds)
    mds_shards_.emplace(object.key, object.incomplete ? std::nullopt : std::optional(object.size));
  RETURN_IF_ERROR(Annotate(writer_->AddObject(object), FrontUri()));
  return scanned.IsRead() || scanned.outline != nullptr ? AddToPart(object) : absl::OkStatus();
}

absl::Status IndexBuilder::AddToPart(const IndexedObject& object) {
  if (!parts_) return absl::OkStatus();
  return parts_->AddObject(object, std::max(options_.part_bytes, objects_.total_bytes() / kMaxParts));
}

absl::Status IndexBuilder::EndReusedObject() {
  const Scanned& scanned = scanning_.front();
  if (reuse_->tokens_type()) RETURN_IF_ERROR(token_files_.TakeKnown(*reuse_->tokens_type()));
  if (manifest_ == nullptr) return reuse_->AddSamples(*scanned.reused, writer_.get());
  // The entry in the manifest may be new.
  ASSIGN_OR_RETURN(const std::optional<uint32_t> crc, reuse_->CrcOf(*scanned.reused));
  return raw_.AddListed(*manifest_, scanned.object, crc, *writer_);
}

absl::Status IndexBuilder::EndReadObject() {
  scan_.Finish();
  if (KeepsWhatCame()) {
    ReportDamage();
  } else {
    RETURN_IF_ERROR(Annotate(ScanError(), FrontUri()));
  }
  NoteSkippedMembers(scan_.skipped_members(), scanning_.front().object.key, &report_.skipped_members);
  if (objects_.kind() != DataKind::kRawObjects) return Annotate(scan_.Release(), FrontUri());
  std::optional<uint32_t> crc;
  if (raw_reads_.all) crc = scan_.crc();
  if (manifest_ != nullptr)
    return Annotate(raw_.AddListed(*manifest_, scanning_.front().object, crc, *writer_), FrontUri());
  return Annotate(raw_.Add(/*class_read=*/raw_.has_class_file(), crc, *writer_), FrontUri());
}

absl::Status IndexBuilder::EndListedObject() {
  const IndexedObject& object = scanning_.front().object;
  if (manifest_ != nullptr) return raw_.AddListed(*manifest_, object, std::nullopt, *writer_);
  RETURN_IF_ERROR(raw_.Begin(data_.join.get(), object));
  // An empty file of a class counts as read: there are no bytes of it.
  return raw_.Add(/*class_read=*/raw_reads_.classes && raw_.has_class_file(), std::nullopt, *writer_);
}

absl::Status IndexBuilder::EndOutlinedObject() {
  Scanned& scanned = scanning_.front();
  const absl::Status fits = outlines_.Check(*scanned.outline, raw_reads_.classes);
  if (absl::IsCancelled(fits)) return fits;
  if (!fits.ok()) {
    if (!absl::IsUnimplemented(fits) && refused_outlines_++ < kMaxNoted) {
      Log(LogLevel::kWarning, "dataset",
          fmt::format("{}; so '{}' is read{}", ToStd(fits.message()), scanned.object.key,
                      refused_outlines_ == kMaxNoted ? " (more such shards are not named)" : ""));
    }
    scanned.outline = nullptr;
    return ReadInPlace();
  }
  uint64_t number = 0;
  ++report_.outlined_objects;
  const auto add = [&](const ShardSample& sample) {
    const std::string key = sample.key.empty() ? RecordKey(scanned.object.key, number) : sample.key;
    ++number;
    return AddShardSample(sample, key, std::nullopt);
  };
  return Annotate(outlines_.Samples(*scanned.outline, add), FrontUri());
}

// Reads the current object, of which nothing was asked for ahead.
absl::Status IndexBuilder::ReadInPlace() {
  const IndexedObject& object = scanning_.front().object;
  std::optional<ObjectReader::Request> request =
      ObjectReader::All({.key = data_.Key(object.key), .size = object.size, .etag = object.etag});
  request->begin_again = [this] { return scan_.holds(); };
  ObjectReader reads(
      *data_.store, memory_,
      [&request]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
        return std::exchange(request, std::nullopt);
      },
      stop_);
  for (bool enough = false; !enough;) {
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reads.Next());
    if (!piece) break;
    enough = piece->last;
    RETURN_IF_ERROR(Annotate(AddPiece(*piece, &enough), FrontUri()));
    progress_.Update(done_bytes_ - object.size + piece->offset + piece->bytes.size(), objects_.total_bytes());
  }
  return EndReadObject();
}

void IndexBuilder::ReportDamage() {
  IndexedObject& object = scanning_.front().object;
  object.incomplete = true;
  report_.damaged.push_back(DamagedShardOf(object.key, scan_.status(), scan_.samples()));
}

absl::Status IndexBuilder::AddShardSample(const ShardSample& sample, std::string_view key,
                                          std::optional<uint32_t> crc) {
  fields_.clear();
  for (const ShardField& field : sample.fields) {
    fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
  }
  const NewSample added{.key = key, .fields = fields_, .crc32c = crc, .label = sample.label};
  RETURN_IF_ERROR(writer_->AddSample(added));
  return parts_ ? parts_->AddSample(added) : absl::OkStatus();
}

}  // namespace

bool AreShards(DataKind kind) {
  return kind != DataKind::kRawObjects && kind != DataKind::kTokens;
}

absl::StatusOr<BuiltIndex> BuildIndex(Runtime& runtime, const DatasetPlace& data, OpenIndexFn open_index,
                                      const BuildOptions& options) {
  if (options.manifest != nullptr && options.tokens) {
    return absl::InvalidArgumentError(
        fmt::format("{}: what a manifest lists are samples, which --tokens cannot cut; index the folder of the arrays "
                    "with --tokens, or the manifest without",
                    options.manifest->place().uri));
  }
  IndexBuilder builder(runtime, data, open_index, options);
  absl::StatusOr<BuiltIndex> built = builder.Run();
  if (built.ok() || !absl::IsCancelled(built.status())) return built;
  const uint64_t kept = builder.kept_shards();
  return absl::CancelledError(fmt::format("{}: interrupted while its index was being built; {}; run it again", data.uri,
                                          kept == 0
                                              ? "nothing was changed"
                                              : fmt::format("{} that {} read {} not read again", Counted(kept, "shard"),
                                                            kept == 1 ? "was" : "were", kept == 1 ? "is" : "are")));
}

}  // namespace millrace
