#include "dataset/index_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "dataset/progress.h"
#include "dataset/read_ahead.h"
#include "dataset/sample_objects.h"
#include "shard/sample_name.h"
#include "shard/tar_samples.h"
#include "store/blocking.h"
#include "store/whole_check.h"

namespace millrace {

namespace {

class IndexBuilder {
 public:
  IndexBuilder(Runtime& runtime, const Location& data, OpenIndexFn open_index, const ProgressFn& progress,
               const std::stop_token& stop)
      : data_(data),
        stop_(stop),
        piece_bytes_(ReadAhead::PieceBytes(runtime.memory())),
        open_index_(open_index),
        progress_(progress),
        listing_(data, stop),
        reads_(
            *data.store, runtime.memory(), [this] { return NextPiece(); }, stop) {}

  absl::StatusOr<IndexSummary> Run();

 private:
  absl::StatusOr<std::optional<ReadAhead::Request>> NextPiece();
  absl::Status AddPiece(ByteSpan bytes);
  absl::Status EndObject();
  absl::Status AddTarSample(const TarSample& sample);
  absl::Status AddRawSample();
  absl::Status NoSamples() const;

  struct Scanned {
    IndexedObject object;
    std::optional<WholeCheck> check;  // of what is read in pieces
  };

  const Location& data_;
  const std::stop_token stop_;
  const uint64_t piece_bytes_;
  const OpenIndexFn open_index_;
  ProgressMeter progress_;
  SampleObjects listing_;

  // Being asked for; its next piece begins at asked_.
  std::optional<IndexedObject> asking_;
  uint64_t asked_ = 0;
  // Asked for, in order; the first is being scanned and got_ bytes of it have come.
  std::deque<Scanned> scanning_;
  uint64_t got_ = 0;
  uint64_t done_bytes_ = 0;

  std::unique_ptr<IndexWriter> writer_;
  TarSampleScanner scanner_;
  uint32_t crc_ = 0;
  std::vector<NewSampleField> fields_;  // reused

  ReadAhead reads_;  // last: its callbacks end before the rest goes
};

// The listing, cut into pieces to read.
absl::StatusOr<std::optional<ReadAhead::Request>> IndexBuilder::NextPiece() {
  if (!asking_) {
    ASSIGN_OR_RETURN(asking_, listing_.Next());
    if (!asking_) return std::nullopt;
    asked_ = 0;
    Scanned& scanned = scanning_.emplace_back(Scanned{.object = *asking_, .check = std::nullopt});
    // What is damaged on the way would be pinned by the index for good.
    if (asking_->size > piece_bytes_) {
      const ObjectInfo object{.key = data_.Key(asking_->key), .size = asking_->size, .etag = asking_->etag};
      ASSIGN_OR_RETURN(scanned.check, WholeCheck::Begin(*data_.store, object, stop_));
    }
  }
  ReadAhead::Request request;
  request.key = data_.Key(asking_->key);
  request.range = {.offset = asked_, .length = std::min(piece_bytes_, asking_->size - asked_)};
  request.if_match = asking_->etag;
  request.whole = request.range.length == asking_->size;
  asked_ = request.range.end();
  if (asked_ == asking_->size) asking_.reset();
  return request;
}

absl::StatusOr<IndexSummary> IndexBuilder::Run() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<ReadAhead::Result> piece, reads_.Next());
    if (!piece) break;
    if (writer_ == nullptr) {
      ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, open_index_());
      writer_ = std::make_unique<IndexWriter>(listing_.kind(), std::move(out));
    }
    RETURN_IF_ERROR(Annotate(AddPiece(piece->bytes.span()), data_.store->Uri(data_.Key(scanning_.front().object.key))));
    done_bytes_ += piece->bytes.size();
    progress_.Update(done_bytes_, listing_.total_bytes());
    if (got_ < scanning_.front().object.size) continue;
    if (scanning_.front().check) RETURN_IF_ERROR(scanning_.front().check->Finish());
    RETURN_IF_ERROR(Annotate(EndObject(), data_.store->Uri(data_.Key(scanning_.front().object.key))));
    scanning_.pop_front();
  }
  if (writer_ == nullptr || writer_->samples() == 0) return NoSamples();
  return writer_->Finish();
}

absl::Status IndexBuilder::NoSamples() const {
  const std::string folder = data_.Key("");
  std::string why = "its shards hold no files such as 0001.jpg";
  if (writer_ == nullptr) {
    why = "no tar shards (*.tar) and no files such as class/0001.jpg";
    const std::string key = folder.substr(0, folder.empty() ? 0 : folder.size() - 1);
    if (!key.empty() && HeadBlocking(*data_.store, key).ok()) why = "that is an object; name the folder it is in";
  }
  return absl::NotFoundError(fmt::format("no samples under {}: {}", data_.store->Uri(folder), why));
}

absl::Status IndexBuilder::AddPiece(ByteSpan bytes) {
  got_ += bytes.size();
  if (scanning_.front().check) scanning_.front().check->Update(bytes);
  if (listing_.kind() == DataKind::kRawObjects) {
    crc_ = Crc32c(bytes, crc_);
    return absl::OkStatus();
  }
  return scanner_.Feed(bytes, [this](const TarSample& sample) { return AddTarSample(sample); });
}

absl::Status IndexBuilder::EndObject() {
  if (listing_.kind() == DataKind::kRawObjects) {
    RETURN_IF_ERROR(AddRawSample());
  } else {
    RETURN_IF_ERROR(scanner_.Finish([this](const TarSample& sample) { return AddTarSample(sample); }));
    scanner_ = {};
  }
  RETURN_IF_ERROR(writer_->AddObject(scanning_.front().object));
  got_ = 0;
  crc_ = 0;
  return absl::OkStatus();
}

absl::Status IndexBuilder::AddTarSample(const TarSample& sample) {
  fields_.clear();
  for (const TarSampleField& field : sample.fields) {
    fields_.push_back({.name = field.name, .offset = field.offset, .length = field.length});
  }
  return writer_->AddSample({.key = sample.key, .fields = fields_, .crc32c = sample.crc32c, .label = sample.label});
}

absl::Status IndexBuilder::AddRawSample() {
  const IndexedObject& object = scanning_.front().object;
  const std::optional<SampleName> name = SplitSampleName(object.key);  // the listing holds only what has one
  fields_.assign(1, {.name = name->field, .offset = 0, .length = object.size});
  return writer_->AddSample({.key = name->key, .fields = fields_, .crc32c = crc_, .label = ClassFolder(name->key)});
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
