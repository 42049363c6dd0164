#include "dataset/index_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "dataset/mds_check.h"
#include "dataset/objects_ahead.h"
#include "dataset/progress.h"
#include "dataset/read_ahead.h"
#include "shard/sample_name.h"
#include "shard/shard_scanner.h"
#include "store/blocking.h"
#include "store/whole_check.h"

namespace millrace {

namespace {

constexpr uint64_t kHeldBytesStep = 1 << 20;

// An object whose pieces are being asked for, or scanned.
struct Scanned {
  IndexedObject object;
  Pieces pieces;
  std::optional<WholeCheck> check;  // of what is read in several pieces
};

// What the object that is being scanned has given so far.
struct Scan {
  std::unique_ptr<ShardScanner> scanner;  // none for a raw object
  absl::Status status;                    // of the scanner
  uint64_t samples = 0;
  uint32_t crc = 0;  // of a raw object
  // Its samples are held back until it is known that it has arrived undamaged, as long as there is memory for them.
  bool holds = false;
  std::vector<ShardSample> held;
  uint64_t held_bytes = 0;
  std::vector<Reservation> memory;  // for them, kHeldBytesStep each
};

class IndexBuilder {
 public:
  IndexBuilder(Runtime& runtime, const Location& data, OpenIndexFn open_index, const ProgressFn& progress,
               const std::stop_token& stop)
      : data_(data),
        memory_(runtime.memory()),
        stop_(stop),
        open_index_(open_index),
        progress_(progress),
        objects_(data, ReadAhead::PieceBytes(memory_), stop),
        reads_(
            *data.store, memory_, [this] { return NextPiece(); }, stop) {}

  absl::StatusOr<IndexSummary> Run();

 private:
  absl::StatusOr<std::optional<ReadAhead::Request>> NextPiece();
  ReadAhead::Request RequestFor(const Scanned& scanned, size_t index) const;
  absl::Status AddPiece(size_t index, ByteSpan bytes);
  void EndScan();
  absl::Status EndObject();
  absl::Status ReadAgain();
  absl::Status AddShardSample(const ShardSample& sample);
  bool MakeRoom(const ShardSample& sample);
  absl::Status Write(const ShardSample& sample, std::string_view key);
  absl::Status WriteHeld();
  absl::Status AddRawSample();
  absl::Status NoSamples() const;
  std::string FrontUri() const { return data_.store->Uri(data_.Key(scanning_.front().object.key)); }

  const Location& data_;
  MemoryBudget& memory_;
  const std::stop_token stop_;
  const OpenIndexFn open_index_;
  ProgressMeter progress_;
  ObjectsAhead objects_;

  // Asked for, in order; the first is being scanned and got_ pieces of it have come.
  std::deque<Scanned> scanning_;
  size_t asked_ = 0;  // pieces of the last
  bool all_asked_ = true;
  size_t got_ = 0;
  uint64_t done_bytes_ = 0;
  std::map<std::string, uint64_t> mds_shards_;  // sizes of those that are done; of MDS only

  std::unique_ptr<IndexWriter> writer_;
  Scan scan_;
  std::vector<NewSampleField> fields_;  // reused

  ReadAhead reads_;  // last: its callbacks end before the rest goes
};

// The listing, cut into pieces to read.
absl::StatusOr<std::optional<ReadAhead::Request>> IndexBuilder::NextPiece() {
  if (all_asked_) {
    ASSIGN_OR_RETURN(std::optional<ObjectsAhead::Object> next, objects_.Next());
    if (!next) return std::nullopt;
    const Pieces pieces(next->info.size, next->info.part_bytes, ReadAhead::PieceBytes(memory_));
    Scanned& scanned =
        scanning_.emplace_back(Scanned{.object = std::move(next->indexed), .pieces = pieces, .check = std::nullopt});
    // What is damaged on the way would be pinned by the index for good.
    if (pieces.count() > 1) scanned.check.emplace(data_.store->Uri(next->info.key), next->info, pieces);
    asked_ = 0;
  }
  ReadAhead::Request request = RequestFor(scanning_.back(), asked_++);
  all_asked_ = asked_ >= scanning_.back().pieces.count();
  return request;
}

ReadAhead::Request IndexBuilder::RequestFor(const Scanned& scanned, size_t index) const {
  ReadAhead::Request request;
  request.key = data_.Key(scanned.object.key);
  request.if_match = scanned.object.etag;
  request.whole = scanned.pieces.count() <= 1;
  if (scanned.pieces.count() == 0) return request;
  request.range = scanned.pieces.At(index);
  request.part = scanned.pieces.IsPart(index);
  return request;
}

absl::StatusOr<IndexSummary> IndexBuilder::Run() {
  while (true) {
    ASSIGN_OR_RETURN(std::optional<ReadAhead::Result> piece, reads_.Next());
    if (!piece) break;
    if (writer_ == nullptr) {
      ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, open_index_());
      writer_ = std::make_unique<IndexWriter>(objects_.kind(), std::move(out));
    }
    RETURN_IF_ERROR(Annotate(AddPiece(got_, piece->bytes.span()), FrontUri()));
    done_bytes_ += piece->bytes.size();
    progress_.Update(done_bytes_, objects_.total_bytes());
    piece.reset();  // who reads again needs memory
    if (++got_ < scanning_.front().pieces.count()) continue;
    RETURN_IF_ERROR(EndObject());
    scanning_.pop_front();
    got_ = 0;
  }
  if (writer_ == nullptr || writer_->samples() == 0) return NoSamples();
  RETURN_IF_ERROR(CheckMdsShards(data_, objects_.companions(), mds_shards_));
  return writer_->Finish();
}

absl::Status IndexBuilder::NoSamples() const {
  const std::string folder = data_.Key("");
  std::string why =
      objects_.kind() == DataKind::kTar ? "its shards hold no files such as 0001.jpg" : "its shards are empty";
  if (writer_ == nullptr) {
    why = "no shards (*.tar, *.tfrecord, *.rec, *.mds) and no files such as class/0001.jpg";
    const std::string key = folder.substr(0, folder.empty() ? 0 : folder.size() - 1);
    if (!key.empty() && HeadBlocking(*data_.store, key).ok()) why = "that is an object; name the folder it is in";
  }
  return absl::NotFoundError(fmt::format("no samples under {}: {}", data_.store->Uri(folder), why));
}

absl::Status IndexBuilder::AddPiece(size_t index, ByteSpan bytes) {
  std::optional<WholeCheck>& check = scanning_.front().check;
  if (index == 0) {
    scan_ = Scan();
    scan_.scanner = MakeShardScanner(objects_.kind());
    scan_.holds = check && check->checks();
  }
  if (check) check->Add(index, bytes);
  if (scan_.scanner == nullptr) {
    scan_.crc = Crc32c(bytes, scan_.crc);
    return absl::OkStatus();
  }
  if (scan_.status.ok())
    scan_.status = scan_.scanner->Feed(bytes, [this](const ShardSample& sample) { return AddShardSample(sample); });
  // What was damaged on the way may be no shard any more: the checksum tells, at the end.
  return scan_.holds ? absl::OkStatus() : scan_.status;
}

void IndexBuilder::EndScan() {
  if (scan_.scanner == nullptr || !scan_.status.ok()) return;
  scan_.status = scan_.scanner->Finish([this](const ShardSample& sample) { return AddShardSample(sample); });
}

absl::Status IndexBuilder::EndObject() {
  EndScan();
  if (std::optional<WholeCheck>& check = scanning_.front().check) {
    RETURN_IF_ERROR(scan_.holds ? check->Settle([this] { return ReadAgain(); }) : check->Finish());
  }
  RETURN_IF_ERROR(Annotate(scan_.status, FrontUri()));
  const bool raw = objects_.kind() == DataKind::kRawObjects;
  RETURN_IF_ERROR(Annotate(raw ? AddRawSample() : WriteHeld(), FrontUri()));
  const IndexedObject& object = scanning_.front().object;
  if (objects_.kind() == DataKind::kMds) mds_shards_.emplace(object.key, object.size);
  return Annotate(writer_->AddObject(object), FrontUri());
}

absl::Status IndexBuilder::ReadAgain() {
  const Scanned& scanned = scanning_.front();
  size_t asked = 0;
  ReadAhead pieces(
      *data_.store, memory_,
      [&]() -> absl::StatusOr<std::optional<ReadAhead::Request>> {
        if (asked == scanned.pieces.count()) return std::nullopt;
        return RequestFor(scanned, asked++);
      },
      stop_);
  for (size_t i = 0; i < scanned.pieces.count(); ++i) {
    ASSIGN_OR_RETURN(const std::optional<ReadAhead::Result> piece, pieces.Next());
    RETURN_IF_ERROR(Annotate(AddPiece(i, piece->bytes.span()), FrontUri()));
  }
  EndScan();
  return absl::OkStatus();
}

absl::Status IndexBuilder::AddShardSample(const ShardSample& sample) {
  const uint64_t number = scan_.samples++;
  const std::string key = sample.key.empty() ? RecordKey(scanning_.front().object.key, number) : sample.key;
  if (scan_.holds && MakeRoom(sample)) {
    scan_.held.push_back(sample);
    scan_.held.back().key = key;
    return absl::OkStatus();
  }
  // Without them the shard cannot be read again: should it be damaged, that is an error.
  if (std::exchange(scan_.holds, false)) RETURN_IF_ERROR(WriteHeld());
  return Write(sample, key);
}

// Memory to hold back a sample: of the budget, but a sixteenth of it at most.
bool IndexBuilder::MakeRoom(const ShardSample& sample) {
  uint64_t bytes = sizeof(ShardSample) + sample.key.size() + sample.label.size();
  if (sample.key.empty()) bytes += scanning_.front().object.key.size() + sizeof("/00000000");
  for (const ShardField& field : sample.fields) bytes += sizeof(ShardField) + field.name.size() + field.encoding.size();
  scan_.held_bytes += 2 * bytes;  // as vectors grow
  while (scan_.held_bytes > scan_.memory.size() * kHeldBytesStep) {
    Reservation more;
    if ((scan_.memory.size() + 1) * kHeldBytesStep <= memory_.limit() / 16) more = memory_.TryReserve(kHeldBytesStep);
    if (!more) return false;
    scan_.memory.push_back(std::move(more));
  }
  return true;
}

absl::Status IndexBuilder::WriteHeld() {
  for (const ShardSample& sample : scan_.held) RETURN_IF_ERROR(Write(sample, sample.key));
  scan_.held = {};
  scan_.memory.clear();
  return absl::OkStatus();
}

absl::Status IndexBuilder::Write(const ShardSample& sample, std::string_view key) {
  fields_.clear();
  for (const ShardField& field : sample.fields) {
    fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
  }
  return writer_->AddSample({.key = key, .fields = fields_, .crc32c = sample.crc32c, .label = sample.label});
}

absl::Status IndexBuilder::AddRawSample() {
  const IndexedObject& object = scanning_.front().object;
  const std::optional<SampleName> name = SplitSampleName(object.key);  // the listing holds only what has one
  fields_.assign(1, {.name = name->field, .offset = 0, .length = object.size});
  return writer_->AddSample(
      {.key = name->key, .fields = fields_, .crc32c = scan_.crc, .label = ClassFolder(name->key)});
}

}  // namespace

absl::StatusOr<IndexSummary> BuildIndex(Runtime& runtime, const Location& data, OpenIndexFn open_index,
                                        const ProgressFn& progress, std::stop_token stop) {
  absl::StatusOr<IndexSummary> built = IndexBuilder(runtime, data, open_index, progress, stop).Run();
  if (!absl::IsCancelled(built.status())) return built;
  const std::string uri = data.store->Uri(data.Key(""));
  return absl::CancelledError(
      fmt::format("{}: interrupted while its index was being built; nothing was changed; run it again", uri));
}

}  // namespace millrace
