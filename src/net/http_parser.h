#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "net/http_message.h"

/// These pure functions parse HTTP/1.1 response heads and chunked bodies from received bytes. They are fuzzed.

namespace millrace {

inline constexpr size_t kMaxHttpHeadBytes = 64 * 1024;

/// Returns the length of the head (with its empty line) at the start of `bytes`, or 0 while it is incomplete.
/// `searched` is the length that an earlier call has already looked at, so that a head that arrives byte by byte is
/// scanned only once.
size_t FindHttpHeadEnd(std::string_view bytes, size_t searched);

/// Says how the end of a body is found.
enum class HttpBodyFraming { kNone, kLength, kChunked, kUntilClose };

struct ParsedResponse {
  HttpResponseHead head;
  HttpBodyFraming framing = HttpBodyFraming::kNone;
  bool keep_alive = false;
  /// Returns true for a response before the final one (1xx), which is to be skipped.
  bool interim() const { return head.status < 200; }
};

/// Parses one whole head, as FindHttpHeadEnd found it. `to_head` says that the request was HEAD, whose response has no
/// body whatever its fields say (head.content_length still has what they say). InvalidArgument for what is not
/// HTTP/1.0 or 1.1, or ambiguous (two different lengths, a length with chunks), or longer than kMaxHttpHeadBytes.
absl::StatusOr<ParsedResponse> ParseHttpResponseHead(std::string_view head, bool to_head);

/// Decodes "Transfer-Encoding: chunked", piece by piece. Extensions and trailers are skipped.
class HttpChunkDecoder {
 public:
  struct Piece {
    size_t consumed = 0;    // bytes of the input that are done with
    std::string_view data;  // body bytes, a part of the consumed input; may be empty
  };

  /// Takes the next bytes and gives at most one piece of body. Call again with what was not consumed; when nothing was
  /// consumed, more input is needed. InvalidArgument for broken framing.
  absl::StatusOr<Piece> Next(std::string_view input);

  bool done() const { return state_ == State::kDone; }

 private:
  enum class State {
    kSize,
    kExtension,
    kSizeEnd,
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,
    kTrailer,
    kTrailerLf,
    kLastLf,
    kDone
  };

  absl::Status Step(char c);

  State state_ = State::kSize;
  uint64_t left_ = 0;    // of the chunk; while its size is read, the size so far
  int digits_ = 0;       // of the size
  size_t overhead_ = 0;  // bytes of the extension or the trailers, bounded
};

}  // namespace millrace
