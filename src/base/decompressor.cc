#include "base/decompressor.h"

#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#define ZSTD_STATIC_LINKING_ONLY  // for ZSTD_createDStream_advanced
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace millrace {

namespace {

constexpr size_t kOutBytes = 256 << 10;

std::string_view NameOfGzipError(int error) {
  switch (error) {
    case ISAL_INVALID_WRAPPER:
      return "this is not the head of a gzip stream";
    case ISAL_UNSUPPORTED_METHOD:
      return "an unknown method of compression";
    case ISAL_INCORRECT_CHECKSUM:
      return "the checksum of the decompressed bytes is another one";
    default:
      return "they cannot be decompressed";
  }
}

class GzipDecompressor final : public Decompressor {
 public:
  /// `wrapper` is the wrapper of the codes, as isa-l numbers it.
  explicit GzipDecompressor(uint32_t wrapper)
      : wrapper_(wrapper), state_(std::make_unique<inflate_state>()), out_(kOutBytes) {
    BeginMember();
  }

 private:
  bool AtEnd() const override { return any_ && between_; }

  void BeginMember() {
    isal_inflate_init(state_.get());
    state_->crc_flag = wrapper_;  // with head and checksum
    between_ = true;
  }

  absl::Status FeedWindow(ByteSpan bytes, Sink out) override {
    state_->next_in = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(bytes.data()));  // it is only read
    state_->avail_in = static_cast<uint32_t>(bytes.size());
    const uint64_t before = taken_;
    while (true) {
      if (between_ && any_) SkipZeros();
      if (between_ && state_->avail_in == 0) break;
      taken_ = before + bytes.size() - state_->avail_in;
      if (between_ && padded_) return Damaged("other bytes follow the compressed ones");
      between_ = false;
      state_->next_out = out_.data();
      state_->avail_out = kOutBytes;
      const int result = isal_inflate(state_.get());
      if (result < 0 || result == ISAL_NEED_DICT) return Damaged(NameOfGzipError(result));
      const size_t came = kOutBytes - state_->avail_out;
      if (came > 0) RETURN_IF_ERROR(out(std::as_bytes(std::span(out_.data(), came))));
      given_ += came;
      if (state_->block_state == ISAL_BLOCK_FINISH) {
        any_ = true;
        sound_ = given_;
        taken_ = before + bytes.size() - state_->avail_in;
        RETURN_IF_ERROR(NextMember(out));
      } else if (state_->avail_in == 0 && state_->avail_out > 0) {
        break;
      }
    }
    taken_ = before + bytes.size();
    return absl::OkStatus();
  }

  // At the end of a member of gzip, the library gives back the bytes that it took in ahead. At that of zlib it keeps
  // them. They are in its store of bits, the first one lowest. They may have come with an earlier window, so they are
  // one of their own.
  absl::Status NextMember(Sink out) {
    uint8_t* const next = state_->next_in;
    const uint32_t left = state_->avail_in;
    std::array<std::byte, sizeof(state_->read_in)> ahead;
    const size_t count = static_cast<size_t>(std::max(0, state_->read_in_length)) / 8;
    for (size_t i = 0; i < count; ++i) ahead[i] = static_cast<std::byte>(state_->read_in >> (8 * i));
    BeginMember();
    if (count > 0) {
      taken_ -= count;
      RETURN_IF_ERROR(FeedWindow(ByteSpan(ahead.data(), count), out));
    }
    state_->next_in = next;
    state_->avail_in = left;
    return absl::OkStatus();
  }

  void SkipZeros() {
    while (state_->avail_in > 0 && *state_->next_in == 0) {
      ++state_->next_in;
      --state_->avail_in;
      padded_ = true;
    }
  }

  const uint32_t wrapper_;
  std::unique_ptr<inflate_state> state_;
  std::vector<uint8_t> out_;
  bool any_ = false;     // a member has come to its end
  bool between_ = true;  // no byte of the next one has come
  bool padded_ = false;  // zeros have come after the last
};

// Provides the library's memory, with its windows as part of a budget. It has one window at a time, so that waiting for
// a budget ends: a decompressor that waits holds no window.
class ZstdMemory {
 public:
  explicit ZstdMemory(WaitingBudget* windows) : windows_(windows) {}

  ZSTD_customMem functions() { return {&Allocate, &Free, this}; }

 private:
  static constexpr size_t kLeastWindow = 1 << 20;

  static void* Allocate(void* self, size_t bytes) {
    auto& memory = *static_cast<ZstdMemory*>(self);
    if (memory.windows_ == nullptr || bytes < kLeastWindow) return std::malloc(bytes);
    memory.windows_->Take(bytes);
    void* const window = std::malloc(bytes);
    if (window == nullptr) {
      memory.windows_->Return(bytes);
    } else {
      memory.window_ = window;
      memory.bytes_ = bytes;
    }
    return window;
  }

  static void Free(void* self, void* address) {
    auto& memory = *static_cast<ZstdMemory*>(self);
    std::free(address);
    if (address == nullptr || address != memory.window_) return;
    memory.window_ = nullptr;
    memory.windows_->Return(memory.bytes_);
  }

  WaitingBudget* const windows_;
  const void* window_ = nullptr;
  size_t bytes_ = 0;
};

class ZstdDecompressor final : public Decompressor {
 public:
  explicit ZstdDecompressor(WaitingBudget* windows)
      : memory_(windows),
        stream_(ZSTD_createDStream_advanced(memory_.functions()), &ZSTD_freeDStream),
        out_(kOutBytes) {}

 private:
  bool AtEnd() const override { return any_ && at_end_; }

  absl::Status FeedWindow(ByteSpan bytes, Sink out) override {
    ZSTD_inBuffer in{.src = bytes.data(), .size = bytes.size(), .pos = 0};
    bool full = false;  // there may be more to come out
    while (in.pos < in.size || full) {
      if (at_end_ && any_ && !full) SkipZeros(&in);
      if (in.pos == in.size && !full) break;
      if (at_end_ && padded_) return Damaged("other bytes follow the compressed ones");
      ZSTD_outBuffer into{.dst = out_.data(), .size = out_.size(), .pos = 0};
      const size_t result = ZSTD_decompressStream(stream_.get(), &into, &in);
      if (ZSTD_isError(result)) return Refuse(result);
      at_end_ = result == 0;
      any_ = any_ || at_end_;
      full = into.pos == into.size && !at_end_;
      if (into.pos > 0) RETURN_IF_ERROR(out(std::as_bytes(std::span(out_.data(), into.pos))));
      given_ += into.pos;
      if (at_end_) sound_ = given_;
    }
    taken_ += bytes.size();
    return absl::OkStatus();
  }

  absl::Status Refuse(size_t result) const {
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      return absl::ResourceExhaustedError(
          "was compressed with a window of more than 128 MiB (zstd --long=28 or more); compress it again with less");
    }
    return Damaged(ZSTD_getErrorName(result));
  }

  void SkipZeros(ZSTD_inBuffer* in) {
    while (in->pos < in->size && static_cast<const uint8_t*>(in->src)[in->pos] == 0) {
      ++in->pos;
      padded_ = true;
    }
  }

  ZstdMemory memory_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  std::vector<uint8_t> out_;
  bool any_ = false;     // a frame has come to its end
  bool at_end_ = true;   // of a frame
  bool padded_ = false;  // zeros have come after the last
};

}  // namespace

absl::Status Decompressor::Damaged(std::string_view why) const {
  return absl::DataLossError(
      fmt::format("the compressed bytes are damaged at offset {} or somewhat after it: {}", taken_, why));
}

absl::Status Decompressor::Feed(ByteSpan bytes, Sink out) {
  while (!bytes.empty()) {
    const ByteSpan some = bytes.first(std::min(bytes.size(), kWindowBytes - window_.size()));
    bytes = bytes.subspan(some.size());
    if (some.size() == kWindowBytes) {
      RETURN_IF_ERROR(FeedWindow(some, out));
      continue;
    }
    window_.insert(window_.end(), some.begin(), some.end());
    if (window_.size() < kWindowBytes) break;
    RETURN_IF_ERROR(FeedWindow(window_, out));
    window_.clear();
  }
  return absl::OkStatus();
}

absl::Status Decompressor::Finish(Sink out) {
  RETURN_IF_ERROR(FeedWindow(window_, out));
  if (AtEnd()) return absl::OkStatus();
  sound_ = given_;
  return absl::DataLossError(fmt::format("the compressed bytes are cut short at offset {}", taken_));
}

std::unique_ptr<Decompressor> Decompressor::Make(Compression compression, WaitingBudget* windows) {
  if (compression == Compression::kGzip) return std::make_unique<GzipDecompressor>(ISAL_GZIP);
  if (compression == Compression::kZlib) return std::make_unique<GzipDecompressor>(ISAL_ZLIB);
  return std::make_unique<ZstdDecompressor>(windows);
}

}  // namespace millrace
