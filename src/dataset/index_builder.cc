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
#include "dataset/index_reuse.h"
#include "dataset/mds_check.h"
#include "dataset/object_scan.h"
#include "dataset/objects_ahead.h"
#include "dataset/progress.h"
#include "dataset/token_files.h"
#include "shard/sample_name.h"
#include "shard/shard_scanner.h"
#include "store/blocking.h"
#include "store/whole_check.h"
#include "transfer/read_ahead.h"

namespace millrace {

namespace {

// An object whose pieces are being asked for, or scanned.
struct Scanned {
  IndexedObject object;
  ObjectInfo info;  // of the store
  Pieces pieces;
  size_t wanted = 0;                // of the pieces
  std::optional<WholeCheck> check;  // of what is read in several pieces
  std::optional<uint32_t> reused;   // its number in the older index; nothing of it is read then
  bool is_manifest = false;         // likewise

  bool IsRead() const { return !reused && !is_manifest; }
};

std::unique_ptr<ObjectSource> MakeListing(const Location& data, const BuildOptions& options) {
  const Listing listing = options.tokens ? Listing::kTokenArrays : Listing::kByName;
  if (options.manifest == nullptr) return std::make_unique<SampleObjects>(data, options.stop, listing);
  return std::make_unique<ManifestObjects>(*options.manifest, options.stop);
}

class IndexBuilder {
 public:
  IndexBuilder(Runtime& runtime, const Location& data, OpenIndexFn open_index, const BuildOptions& options)
      : data_(data),
        memory_(runtime.memory()),
        manifest_(options.manifest),
        skip_bad_(options.skip_bad),
        stop_(options.stop),
        open_index_(open_index),
        progress_(options.progress),
        listing_(MakeListing(data, options)),
        objects_(data, *listing_, ReadAhead::PieceBytes(*data.store, memory_), MakeReuse(options), options.stop),
        token_files_(data, memory_, options.tokens, options.stop),
        scan_(memory_, [this](const ShardSample& sample, std::string_view key) { return AddShardSample(sample, key); }),
        reads_(
            *data.store, memory_, [this] { return NextPiece(); }, options.stop) {}

  absl::StatusOr<BuiltIndex> Run();
  /// An error of Run, with what helps against a bad shard where that is what it is about.
  absl::Status WithRemedy(const absl::Status& status) const;

 private:
  IndexReuse* MakeReuse(const BuildOptions& options) {
    return options.reuse == nullptr ? nullptr : &reuse_.emplace(*options.reuse, options.tokens);
  }
  absl::StatusOr<std::optional<ReadAhead::Request>> NextPiece();
  absl::Status BeginScan();
  absl::Status AddPiece(size_t index, ByteSpan bytes);
  absl::Status EndObject();
  absl::Status EndReusedObject();
  absl::Status EndReadObject();
  absl::Status ReadAgain();
  void NoteLinks();
  void WarnOfLinks() const;
  void AskNoMore();
  // What came of it before is to be kept.
  bool KeepsWhatCame() const { return skip_bad_ && scan_.damaged(); }
  void ReportDamage();
  absl::Status AddShardSample(const ShardSample& sample, std::string_view key);
  absl::Status AddRawSample();
  absl::Status AddListedSample(const IndexedObject& object, uint32_t crc);
  absl::Status NoSamples() const;
  // Of a pair of token files; their bytes are not among those of the data set (SampleObjects::total_bytes).
  bool IsIdx(const IndexedObject& object) const {
    return objects_.kind() == DataKind::kTokens && IsMegatronIdx(object.key);
  }
  std::string FrontUri() const { return data_.store->Uri(data_.Key(scanning_.front().object.key)); }

  const Location& data_;
  MemoryBudget& memory_;
  const ManifestSamples* const manifest_;  // null: none
  const bool skip_bad_;
  const std::stop_token stop_;
  const OpenIndexFn open_index_;
  ProgressMeter progress_;
  std::optional<IndexReuse> reuse_;
  const std::unique_ptr<ObjectSource> listing_;
  ObjectsAhead objects_;
  TokenFiles token_files_;  // of token files only

  // Asked for, in order; the first is being scanned and got_ pieces of it have come.
  std::deque<Scanned> scanning_;
  size_t asked_ = 0;  // pieces of the last
  bool all_asked_ = true;
  size_t got_ = 0;
  uint64_t done_bytes_ = 0;
  std::map<std::string, std::optional<uint64_t>> mds_shards_;  // as CheckMdsShards takes them; of MDS only

  std::unique_ptr<IndexWriter> writer_;
  BuildReport report_;
  uint64_t links_ = 0;      // that tar shards have where fields are expected
  std::string first_link_;  // for people
  ObjectScan scan_;
  std::vector<NewSampleField> fields_;  // reused
  std::vector<NewSampleValue> values_;  // likewise

  ReadAhead reads_;  // last: its callbacks end before the rest goes
};

// The listing, cut into pieces to read.
absl::StatusOr<std::optional<ReadAhead::Request>> IndexBuilder::NextPiece() {
  if (all_asked_) {
    ASSIGN_OR_RETURN(std::optional<ObjectsAhead::Object> next, objects_.Next());
    if (!next) return std::nullopt;
    // What is not read is one piece without bytes, which takes its turn among the others and costs no request.
    const bool is_manifest = manifest_ != nullptr && next->info.key == manifest_->place().info.key;
    // The .idx of a pair is read with its .bin.
    const uint64_t bytes = next->reused || is_manifest || IsIdx(next->indexed) ? 0 : next->info.size;
    const Pieces pieces(bytes, next->info.part_bytes, ReadAhead::PieceBytes(*data_.store, memory_));
    Scanned& scanned = scanning_.emplace_back(Scanned{.object = std::move(next->indexed),
                                                      .info = std::move(next->info),
                                                      .pieces = pieces,
                                                      .wanted = pieces.count(),
                                                      .check = std::nullopt,
                                                      .reused = next->reused,
                                                      .is_manifest = is_manifest});
    // What is damaged on the way would be pinned by the index for good.
    if (pieces.count() > 1) scanned.check.emplace(data_.store->Uri(scanned.info.key), scanned.info, pieces);
    asked_ = 0;
  }
  ReadAhead::Request request = PieceRequest(scanning_.back().info, scanning_.back().pieces, asked_++);
  all_asked_ = asked_ >= scanning_.back().wanted;
  return request;
}

absl::StatusOr<BuiltIndex> IndexBuilder::Run() {
  while (true) {
    ASSIGN_OR_RETURN(std::optional<ReadAhead::Result> piece, reads_.Next());
    if (!piece) break;
    if (writer_ == nullptr) {
      ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, open_index_());
      writer_ = std::make_unique<IndexWriter>(objects_.kind(), std::move(out));
    }
    const Scanned& front = scanning_.front();
    if (front.IsRead()) RETURN_IF_ERROR(Annotate(AddPiece(got_, piece->bytes.span()), FrontUri()));
    done_bytes_ += front.IsRead() || IsIdx(front.object) ? piece->bytes.size() : front.object.size;
    progress_.Update(done_bytes_, objects_.total_bytes());
    piece.reset();  // reading again needs memory
    if (++got_ < front.wanted) continue;
    RETURN_IF_ERROR(EndObject());
    scanning_.pop_front();
    got_ = 0;
  }
  if (writer_ == nullptr || writer_->samples() == 0) return NoSamples();
  RETURN_IF_ERROR(CheckMdsShards(data_, objects_.companions(), mds_shards_));
  ASSIGN_OR_RETURN(IndexSummary summary, writer_->Finish());
  if (manifest_ != nullptr) --summary.objects;
  WarnOfLinks();
  return BuiltIndex{.summary = std::move(summary), .report = std::move(report_)};
}

absl::Status IndexBuilder::NoSamples() const {
  const std::string folder = data_.Key("");
  if (manifest_ != nullptr)
    return absl::NotFoundError(fmt::format("{}: the manifest lists no objects", manifest_->place().uri));
  if (!report_.damaged.empty()) {
    const DamagedShard& first = report_.damaged.front();
    return absl::DataLossError(fmt::format("no samples under {}: {} damaged shards, the first of them '{}' ({})",
                                           data_.store->Uri(folder), report_.damaged.size(), first.key, first.why));
  }
  std::string why =
      objects_.kind() == DataKind::kTar ? "its shards hold no files such as 0001.jpg" : "its shards are empty";
  if (writer_ == nullptr) {
    why =
        "no shards (*.tar, *.tfrecord, *.rec, *.mds), pairs of .bin and .idx, or files such as class/0001.jpg (with "
        "--tokens: no *.npy or *.bin)";
    const std::string key = folder.substr(0, folder.empty() ? 0 : folder.size() - 1);
    if (!key.empty() && HeadBlocking(*data_.store, key).ok()) why = "that is an object; name the folder it is in";
  }
  return absl::NotFoundError(fmt::format("no samples under {}: {}", data_.store->Uri(folder), why));
}

absl::Status IndexBuilder::WithRemedy(const absl::Status& status) const {
  if (skip_bad_ || !scan_.damaged() || !ToStd(status.message()).ends_with(ToStd(scan_.status().message())))
    return status;
  return absl::Status(status.code(), fmt::format("{}; repair or replace it, or leave out its samples from there on: "
                                                 "`millrace index` and `pack` take --skip-bad",
                                                 ToStd(status.message())));
}

absl::Status IndexBuilder::BeginScan() {
  const Scanned& scanned = scanning_.front();
  const bool hold = scanned.check && scanned.check->checks();
  if (objects_.kind() != DataKind::kTokens) {
    scan_.Begin(scanned.object.key, MakeShardScanner(objects_.kind()), hold);
    return absl::OkStatus();
  }
  absl::Status damage;
  ASSIGN_OR_RETURN(std::unique_ptr<ShardScanner> scanner, token_files_.ScannerFor(scanned.object, &damage));
  if (damage.ok()) {
    scan_.Begin(scanned.object.key, std::move(scanner), hold);
    return absl::OkStatus();
  }
  // What is wrong with a pair is known before the first byte of its .bin.
  scan_.BeginDamaged(scanned.object.key, std::move(damage));
  if (!KeepsWhatCame()) return scan_.status();
  scanning_.front().check.reset();
  return absl::OkStatus();
}

// The rest of an object that is bad is of no use, but what is on its way comes.
void IndexBuilder::AskNoMore() {
  if (scanning_.size() > 1 || all_asked_) return;
  Scanned& scanned = scanning_.front();
  scanned.wanted = asked_;
  done_bytes_ += scanned.info.size - scanned.pieces.At(asked_).offset;
  all_asked_ = true;
}

absl::Status IndexBuilder::AddPiece(size_t index, ByteSpan bytes) {
  if (index == 0) RETURN_IF_ERROR(BeginScan());
  Scanned& scanned = scanning_.front();
  if (scanned.check) scanned.check->Add(index, bytes);
  scan_.Feed(bytes);
  // What was damaged on the way may be no shard any more: where there is a checksum it tells, at the end.
  const bool may_be_sound = scanned.check && scanned.check->checks();
  if (KeepsWhatCame() && !may_be_sound) AskNoMore();
  return scan_.holds() || KeepsWhatCame() ? absl::OkStatus() : scan_.status();
}

absl::Status IndexBuilder::EndObject() {
  const Scanned& scanned = scanning_.front();
  const IndexedObject& object = scanned.object;
  if (scanned.reused && !scanned.is_manifest) {
    RETURN_IF_ERROR(Annotate(EndReusedObject(), FrontUri()));
    ++report_.reused_objects;
  } else if (scanned.IsRead()) {
    RETURN_IF_ERROR(EndReadObject());
  }
  if (objects_.kind() == DataKind::kMds)
    mds_shards_.emplace(object.key, object.incomplete ? std::nullopt : std::optional(object.size));
  return Annotate(writer_->AddObject(object), FrontUri());
}

absl::Status IndexBuilder::EndReusedObject() {
  const Scanned& scanned = scanning_.front();
  if (reuse_->tokens_type()) RETURN_IF_ERROR(token_files_.TakeKnown(*reuse_->tokens_type()));
  if (manifest_ == nullptr) return reuse_->AddSamples(*scanned.reused, writer_.get());
  // What the manifest says of it may be new.
  ASSIGN_OR_RETURN(const uint32_t crc, reuse_->CrcOf(*scanned.reused));
  return AddListedSample(scanned.object, crc);
}

absl::Status IndexBuilder::EndReadObject() {
  scan_.Finish();
  if (std::optional<WholeCheck>& check = scanning_.front().check) {
    RETURN_IF_ERROR(scan_.holds() ? check->Settle([this] { return ReadAgain(); }) : check->Finish());
  }
  if (KeepsWhatCame()) {
    ReportDamage();
  } else {
    RETURN_IF_ERROR(Annotate(scan_.status(), FrontUri()));
  }
  NoteLinks();
  const bool raw = objects_.kind() == DataKind::kRawObjects;
  return Annotate(raw ? AddRawSample() : scan_.Release(), FrontUri());
}

void IndexBuilder::NoteLinks() {
  const SkippedLinks links = scan_.skipped_links();
  if (links.count == 0) return;
  if (links_ == 0) first_link_ = fmt::format("'{}' in '{}'", links.first, scanning_.front().object.key);
  links_ += links.count;
}

// The maker of the shard will miss them.
void IndexBuilder::WarnOfLinks() const {
  if (links_ == 0) return;
  Log(LogLevel::kWarning, "dataset",
      fmt::format("{} of tar shards {} passed over, the first of them {}: a link has no data of its own; write the "
                  "file in its place (tar --hard-dereference --dereference)",
                  Counted(links_, "link"), links_ == 1 ? "was" : "were", first_link_));
}

void IndexBuilder::ReportDamage() {
  IndexedObject& object = scanning_.front().object;
  object.incomplete = true;
  report_.damaged.push_back(DamagedShardOf(object.key, scan_.status(), scan_.samples()));
}

absl::Status IndexBuilder::ReadAgain() {
  const Scanned& scanned = scanning_.front();
  RETURN_IF_ERROR(
      ReadPieces(*data_.store, memory_, scanned.info, scanned.pieces, stop_,
                 [this](size_t index, ByteSpan bytes) { return Annotate(AddPiece(index, bytes), FrontUri()); }));
  scan_.Finish();
  return absl::OkStatus();
}

absl::Status IndexBuilder::AddShardSample(const ShardSample& sample, std::string_view key) {
  fields_.clear();
  for (const ShardField& field : sample.fields) {
    fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
  }
  return writer_->AddSample({.key = key, .fields = fields_, .crc32c = sample.crc32c, .label = sample.label});
}

absl::Status IndexBuilder::AddRawSample() {
  const IndexedObject& object = scanning_.front().object;
  if (manifest_ != nullptr) return AddListedSample(object, scan_.crc());
  const std::optional<SampleName> name = SplitSampleName(object.key);  // the listing holds only what has one
  fields_.assign(1, {.name = name->field, .offset = 0, .length = object.size});
  return writer_->AddSample(
      {.key = name->key, .fields = fields_, .crc32c = scan_.crc(), .label = ClassFolder(name->key)});
}

absl::Status IndexBuilder::AddListedSample(const IndexedObject& object, uint32_t crc) {
  const std::optional<ManifestSample> sample = manifest_->Find(object.key);
  if (!sample) return absl::InternalError("the manifest does not list it");
  fields_.assign(1, {.name = sample->field, .offset = 0, .length = object.size, .encoding = {}});
  values_.clear();
  for (const ManifestValue& value : sample->values)
    values_.push_back({.name = value.name, .text = value.text, .encoding = value.encoding});
  return Annotate(
      writer_->AddSample(
          {.key = sample->key, .fields = fields_, .crc32c = crc, .label = sample->label, .values = values_}),
      fmt::format("{}: {}", manifest_->place().uri, sample->line));
}

}  // namespace

absl::StatusOr<BuiltIndex> BuildIndex(Runtime& runtime, const Location& data, OpenIndexFn open_index,
                                      const BuildOptions& options) {
  if (options.manifest != nullptr && options.tokens) {
    return absl::InvalidArgumentError(
        fmt::format("{}: what a manifest lists are samples, which --tokens cannot cut; index the folder of the arrays "
                    "with --tokens, or the manifest without",
                    options.manifest->place().uri));
  }
  IndexBuilder builder(runtime, data, open_index, options);
  absl::StatusOr<BuiltIndex> built = builder.Run();
  if (!built.ok() && !absl::IsCancelled(built.status())) return builder.WithRemedy(built.status());
  if (built.ok()) return built;
  const std::string uri = options.manifest == nullptr ? data.store->Uri(data.Key("")) : options.manifest->place().uri;
  return absl::CancelledError(
      fmt::format("{}: interrupted while its index was being built; nothing was changed; run it again", uri));
}

}  // namespace millrace
