#include "transfer/copy_object.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/size.h"
#include "net/runtime.h"
#include "store/blocking.h"
#include "store/calls_in_flight.h"
#include "store/completion.h"
#include "store/whole_check.h"
#include "transfer/content_type.h"

namespace millrace {

namespace {

constexpr uint64_t kLeastMemory = 64 << 20;  // two pieces of the usual size, and more

void Tell(const CopyObjectOptions& options, uint64_t bytes) {
  if (options.moved) options.moved(bytes);
}

absl::StatusOr<ObjectInfo> CopyWithinStore(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                           const std::string& key, const CopyObjectOptions& options) {
  Completion<absl::StatusOr<ObjectInfo>> copied;
  to.Copy(from, source, key, {.moved = options.moved, .stop = options.stop}, copied.Callback());
  return copied.Wait();
}

// Files and memory keep no checksums, and what is read from them has not travelled.
bool Travels(const ObjectStore& from) {
  return from.traits().is_remote();
}

// A copy of a file is no more open to others than the file is.
uint32_t ModeFor(const ObjectStore& from, const ObjectInfo& source) {
  struct stat info {};
  if (!from.traits().is_folder() || stat(from.Uri(source.key).c_str(), &info) != 0) return PutOptions().most_mode;
  return info.st_mode & PutOptions().most_mode;
}

PutOptions PutOptionsFor(const ObjectStore& from, const ObjectInfo& source, const std::string& key,
                         const CopyObjectOptions& options) {
  PutOptions put;
  put.most_mode = ModeFor(from, source);
  put.content_type = options.content_type.empty() ? std::string(ContentTypeOf(key)) : options.content_type;
  put.modified_ms = source.modified_ms;
  put.only_if_absent = options.only_if_absent;
  return put;
}

absl::Status CameDifferently(const ObjectStore& from, const ObjectInfo& source) {
  return absl::DataLossError(
      fmt::format("{}: two reads brought different bytes, and the store keeps no checksum to show which are right; "
                  "nothing was written: copy it again",
                  from.Uri(source.key)));
}

absl::StatusOr<CopiedObject> CheckSize(absl::StatusOr<CopiedObject> copied, const ObjectStore& from,
                                       const ObjectInfo& source, const ObjectStore& to, const std::string& key) {
  if (!copied.ok() || copied->info.size == source.size) return copied;
  return absl::DataLossError(fmt::format("{}: has {} bytes after copying {}, which has {}; copy it again", to.Uri(key),
                                         copied->info.size, from.Uri(source.key), source.size));
}

// Copies an object of one piece: holds the requests that read and write it, and the result of their answers.
class CopyAtOnce {
 public:
  CopyAtOnce(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key, CopyObjectOptions options)
      : from_(from),
        source_(std::move(source)),
        to_(to),
        key_(std::move(key)),
        options_(std::move(options)),
        buffer_(source_.size) {}

  void Read(GetCallback done) {
    GetOptions get;
    get.range = {0, source_.size};
    get.if_match = source_.etag;
    get.whole = true;
    get.stop = options_.stop;
    from_.Get(source_.key, buffer_.span(), std::move(get), std::move(done));
  }

  // Returns true if it is to be read once more.
  absl::StatusOr<bool> OnRead(const absl::StatusOr<GetResult>& got) {
    RETURN_IF_ERROR(got.status());
    if (first_hash_) {
      if (Xxh3(buffer_.span()) != *first_hash_) return CameDifferently(from_, source_);
      copied_.check = CopyCheck::kReadTwice;
      return false;
    }
    if (Travels(from_) && !got->verified && source_.size > 0) copied_.check = CopyCheck::kNone;
    if (copied_.check != CopyCheck::kNone || !options_.read_twice) return false;
    first_hash_ = Xxh3(buffer_.span());
    return true;
  }

  void Write(PutCallback done) {
    PutOptions put = PutOptionsFor(from_, source_, key_, options_);
    put.stop = options_.stop;
    to_.Put(key_, buffer_.span(), std::move(put), std::move(done));
  }

  absl::StatusOr<CopiedObject> OnWritten(absl::StatusOr<ObjectInfo> written) {
    RETURN_IF_ERROR(written.status());
    copied_.info = *std::move(written);
    Tell(options_, source_.size);
    return CheckSize(std::move(copied_), from_, source_, to_, key_);
  }

 private:
  ObjectStore& from_;
  const ObjectInfo source_;
  ObjectStore& to_;
  const std::string key_;
  const CopyObjectOptions options_;
  Buffer buffer_;
  std::optional<uint64_t> first_hash_;  // of what came first, if it is read twice
  CopiedObject copied_;
};

absl::StatusOr<CopiedObject> CopyAtOnceBlocking(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                                const std::string& key, const CopyObjectOptions& options) {
  CopyAtOnce copy(from, source, to, key, options);
  for (bool again = true; again;) {
    Completion<absl::StatusOr<GetResult>> read;
    copy.Read(read.Callback());
    ASSIGN_OR_RETURN(again, copy.OnRead(read.Wait()));
  }
  Completion<absl::StatusOr<ObjectInfo>> written;
  copy.Write(written.Callback());
  return copy.OnWritten(written.Wait());
}

void ReadThenWrite(const std::shared_ptr<CopyAtOnce>& copy, CopyCallback done) {
  copy->Read([copy, done = std::move(done)](const absl::StatusOr<GetResult>& got) mutable {
    const absl::StatusOr<bool> again = copy->OnRead(got);
    if (!again.ok()) return std::move(done)(again.status());
    if (*again) return ReadThenWrite(copy, std::move(done));
    copy->Write([copy, done = std::move(done)](absl::StatusOr<ObjectInfo> written) mutable {
      std::move(done)(copy->OnWritten(std::move(written)));
    });
  });
}

class CopyInPieces {
 public:
  CopyInPieces(ObjectStore& from, const ObjectInfo& source, Pieces pieces, const CopyObjectOptions& options)
      : from_(from),
        source_(source),
        pieces_(pieces),
        options_(options),
        check_(from.Uri(source.key), source, pieces),
        calls_(options.stop) {}

  absl::StatusOr<CopiedObject> Run(ObjectStore& to, const std::string& key) {
    PutOptions put = PutOptionsFor(from_, source_, key, options_);
    put.stop = calls_.stop();
    ASSIGN_OR_RETURN(const std::unique_ptr<PieceWriter> writer, to.WritePieces(key, std::move(put)));
    writer_ = writer.get();
    slots_.resize(std::min(PiecesInFlight(pieces_), pieces_.count()));
    RETURN_IF_ERROR(MoveAll());
    RETURN_IF_ERROR(check_.Settle([this] {
      again_ = true;
      return MoveAll();
    }));
    CopiedObject copied{.info = {}, .check = Check()};
    if (copied.check == CopyCheck::kNone && options_.read_twice) {
      RETURN_IF_ERROR(ReadAgain());
      copied.check = CopyCheck::kReadTwice;
    }
    ASSIGN_OR_RETURN(copied.info, CommitBlocking(*writer, pieces_.object_bytes()));
    return copied;
  }

 private:
  // Holds a buffer that is used again and again: a piece is read into it, written from it, then the next one.
  struct Slot {
    Buffer buffer;
    size_t piece = 0;
    uint64_t length = 0;
    ByteSpan bytes() const { return buffer.span().first(length); }
  };

  CopyCheck Check() const;
  absl::Status ReadAgain();
  absl::Status MoveAll();
  void ReadNext(Slot& slot);
  absl::Status OnRead(Slot& slot, const absl::StatusOr<GetResult>& got);
  absl::Status Note(const Slot& slot, bool verified);
  void Write(Slot& slot);
  absl::Status OnWritten(Slot& slot, const absl::Status& written);

  ObjectStore& from_;
  const ObjectInfo& source_;
  const Pieces pieces_;
  const CopyObjectOptions& options_;
  WholeCheck check_;
  PieceWriter* writer_ = nullptr;
  std::vector<Slot> slots_;
  size_t next_ = 0;  // piece
  bool again_ = false;
  size_t unverified_ = 0;         // pieces that came without a checksum of their own
  bool comparing_ = false;        // the pieces come once more, only to be held against `hashes_`
  std::vector<uint64_t> hashes_;  // of the pieces, if they may be read twice
  CallsInFlight calls_;           // reads and writes
};

CopyCheck CopyInPieces::Check() const {
  if (!Travels(from_) || unverified_ == 0 || check_.Matches()) return CopyCheck::kMatches;
  return check_.checks() ? CopyCheck::kReadTwice : CopyCheck::kNone;
}

absl::Status CopyInPieces::ReadAgain() {
  comparing_ = true;
  return MoveAll();
}

// Every read and write has ended when it returns, as the buffers must outlive them.
absl::Status CopyInPieces::MoveAll() {
  next_ = 0;
  unverified_ = 0;
  for (Slot& slot : slots_) ReadNext(slot);
  RETURN_IF_ERROR(calls_.WaitForAll());
  if (!calls_.stop().stop_requested()) return absl::OkStatus();
  return absl::CancelledError(fmt::format("{}: interrupted", from_.Uri(source_.key)));
}

void CopyInPieces::ReadNext(Slot& slot) {
  if (next_ == pieces_.count() || calls_.stop().stop_requested()) return;
  if (slot.buffer.size() == 0) slot.buffer = Buffer(pieces_.largest());
  slot.piece = next_++;
  const ByteRange range = pieces_.At(slot.piece);
  slot.length = range.length;
  GetOptions options;
  options.range = range;
  options.if_match = source_.etag;
  options.whole = range.length == source_.size;
  options.part = pieces_.IsPart(slot.piece);
  options.stop = calls_.stop();
  from_.Get(source_.key, slot.buffer.span().first(slot.length), std::move(options),
            calls_.Add<absl::StatusOr<GetResult>>([this, &slot](const auto& got) { return OnRead(slot, got); }));
}

absl::Status CopyInPieces::OnRead(Slot& slot, const absl::StatusOr<GetResult>& got) {
  RETURN_IF_ERROR(got.status());
  if (calls_.stop().stop_requested()) return absl::OkStatus();
  RETURN_IF_ERROR(Note(slot, got->verified));
  if (!comparing_ && check_.Add(slot.piece, slot.bytes())) {
    Write(slot);
  } else {
    ReadNext(slot);
  }
  return absl::OkStatus();
}

// `verified` means: by a checksum of its own.
absl::Status CopyInPieces::Note(const Slot& slot, bool verified) {
  unverified_ += verified ? 0 : 1;
  if (!options_.read_twice || check_.checks()) return absl::OkStatus();
  const uint64_t hash = Xxh3(slot.bytes());
  if (comparing_) return hashes_[slot.piece] == hash ? absl::OkStatus() : CameDifferently(from_, source_);
  if (hashes_.size() <= slot.piece) hashes_.resize(slot.piece + 1);
  hashes_[slot.piece] = hash;
  return absl::OkStatus();
}

void CopyInPieces::Write(Slot& slot) {
  writer_->Write(slot.piece, pieces_.At(slot.piece).offset, slot.bytes(), std::nullopt,
                 calls_.Add<absl::Status>([this, &slot](const auto& written) { return OnWritten(slot, written); }));
}

absl::Status CopyInPieces::OnWritten(Slot& slot, const absl::Status& written) {
  RETURN_IF_ERROR(written);
  if (calls_.stop().stop_requested()) return absl::OkStatus();
  if (!again_) Tell(options_, slot.length);  // the second time only what came differently is written
  ReadNext(slot);
  return absl::OkStatus();
}

// The size may be a lie, and then is found out only when the bytes do not come.
absl::Status CheckMemory(const ObjectStore& from, const ObjectInfo& object, const Pieces& pieces, PieceLimits limits) {
  if (pieces.largest() > limits.most_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: has {}, which does not fit into the {} parts of at most {} that the store takes: copy it in "
                    "several objects",
                    from.Uri(object.key), FormatSize(object.size), limits.most_pieces, FormatSize(limits.most_bytes)));
  }
  const uint64_t needed = pieces.largest() * PiecesInFlight(pieces);
  if (needed <= std::max(UsableMemory() / 4, kLeastMemory)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{}: has {}; to copy it takes {} of memory, more than a quarter of the {} of this machine",
                  from.Uri(object.key), FormatSize(object.size), FormatSize(needed), FormatSize(UsableMemory())));
}

absl::StatusOr<CopiedObject> CopyThrough(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                         const std::string& key, const CopyObjectOptions& options) {
  if (options.before_moving) RETURN_IF_ERROR(options.before_moving());
  if (source.size <= kPieceBytes) return CopyAtOnceBlocking(from, source, to, key, options);
  ASSIGN_OR_RETURN(const ObjectInfo object, LearnBlocking(from, source, options.stop));
  const Pieces pieces(object.size, object.part_bytes, kPieceBytes, to.traits().pieces);
  RETURN_IF_ERROR(CheckMemory(from, object, pieces, to.traits().pieces));
  return CopyInPieces(from, object, pieces, options).Run(to, key);
}

}  // namespace

absl::StatusOr<CopiedObject> CopyObject(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                        const std::string& key, const CopyObjectOptions& options) {
  if (to.CopiesFrom(from) && !options.through && !options.only_if_absent) {
    absl::StatusOr<ObjectInfo> copied = CopyWithinStore(from, source, to, key, options);
    if (copied.ok()) return CopiedObject{.info = *std::move(copied)};
    if (!absl::IsUnimplemented(copied.status())) return copied.status();
  }
  return CheckSize(CopyThrough(from, source, to, key, options), from, source, to, key);
}

void CopySmallObject(ObjectStore& from, ObjectInfo source, ObjectStore& to, std::string key, CopyObjectOptions options,
                     CopyCallback done) {
  ReadThenWrite(std::make_shared<CopyAtOnce>(from, std::move(source), to, std::move(key), std::move(options)),
                std::move(done));
}

}  // namespace millrace
