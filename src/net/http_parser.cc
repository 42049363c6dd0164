#include "net/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/basic_parser.hpp>
#include <charconv>
#include <utility>

#include "absl/strings/match.h"
#include "base/hex.h"

namespace millrace {

namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;

std::string_view Std(string_view text) {
  return {text.data(), text.size()};
}

/// Takes the fields that Beast's parser finds straight into our structures. Beast derives the framing and refuses what
/// is ambiguous.
class HeadParser final : public http::basic_parser<false> {
 public:
  HeadParser() {
    header_limit(kMaxHttpHeadBytes);
    body_limit(boost::none);
    eager(false);
  }

  std::string reason;
  int status = 0;
  HttpHeaders headers;

 private:
  void on_request_impl(http::verb, string_view, string_view, int, error_code& error) override { error = {}; }
  void on_response_impl(int code, string_view text, int, error_code& error) override {
    error = {};
    reason = Std(text);
    status = code;
  }
  void on_field_impl(http::field, string_view name, string_view value, error_code& error) override {
    error = {};
    headers.Add(Std(name), Std(value));
  }
  void on_header_impl(error_code& error) override { error = {}; }

  // The parser is given heads only, so bodies never come.
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code& error) override { error = {}; }
  size_t on_body_impl(string_view body, error_code& error) override {
    error = {};
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, string_view, error_code& error) override { error = {}; }
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code& error) override {
    error = {};
    return body.size();
  }
  void on_finish_impl(error_code& error) override { error = {}; }
};

absl::Status Parse(HeadParser& parser, std::string_view head) {
  if (head.size() > kMaxHttpHeadBytes) {
    return absl::InvalidArgumentError(fmt::format("the HTTP head is longer than {} bytes", kMaxHttpHeadBytes));
  }
  error_code error;
  parser.put(boost::asio::const_buffer(head.data(), head.size()), error);
  if (error || !parser.is_header_done()) {
    return absl::InvalidArgumentError(fmt::format("malformed HTTP head: {}", error ? error.message() : "incomplete"));
  }
  return absl::OkStatus();
}

constexpr size_t kUsualFields = 16;  // of an answer

bool IsPlainText(std::string_view text) {
  unsigned char odd = 0;  // of all characters, so that several are compared at once
  for (const char c : text) odd |= static_cast<unsigned char>(c - ' ') > '~' - ' ' ? 1 : 0;
  return odd == 0;
}

constexpr std::array<bool, 256> MakeNameCharacters() {
  std::array<bool, 256> in_names{};
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"))
    in_names[static_cast<unsigned char>(c)] = true;
  return in_names;
}
constexpr std::array<bool, 256> kNameCharacters = MakeNameCharacters();

bool IsPlainName(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return kNameCharacters[static_cast<unsigned char>(c)]; });
}

/// Returns true for fields that say something about the connection or, apart from Content-Length, about the framing.
bool IsOfConnection(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"connection", "transfer-encoding", "upgrade", "proxy-connection"};
  return std::any_of(kNames.begin(), kNames.end(), [name](std::string_view other) {
    return name.size() == other.size() && absl::EqualsIgnoreCase(ToAbsl(name), ToAbsl(other));
  });
}

/// Takes the line before "\r\n" from `rest`. Returns nullopt if it is not plain text.
std::optional<std::string_view> TakePlainLine(std::string_view* rest) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos || end == 0 || (*rest)[end - 1] != '\r') return std::nullopt;
  const std::string_view line = rest->substr(0, end - 1);
  rest->remove_prefix(end + 1);
  return IsPlainText(line) ? std::optional(line) : std::nullopt;
}

std::string_view Trimmed(std::string_view value) {
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && value.back() == ' ') value.remove_suffix(1);
  return value;
}

/// Parses a head as nearly all are: of HTTP/1.1, with a status whose body has one Content-Length, and without a field
/// about the connection. Returns nullopt for any other, sound or not, which is then left to Beast, which takes
/// longer.
std::optional<ParsedResponse> ParseUsualHead(std::string_view head) {
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  constexpr std::string_view kLength = "content-length";
  std::string_view rest = head;
  const std::optional<std::string_view> first = TakePlainLine(&rest);
  if (!first || !first->starts_with(kVersion) || first->size() < kVersion.size() + 4) return std::nullopt;
  ParsedResponse result;
  const char* const digits = first->data() + kVersion.size();
  const auto [stop, error] = std::from_chars(digits, digits + 3, result.head.status);
  const int status = result.head.status;
  if (error != std::errc() || stop != digits + 3 || *stop != ' ') return std::nullopt;
  if (status < 200 || status > 599 || status == 204 || status == 304) return std::nullopt;
  result.head.reason = first->substr(kVersion.size() + 4);
  result.head.headers.Reserve(kUsualFields, head.size());
  for (;;) {
    const std::optional<std::string_view> line = TakePlainLine(&rest);
    if (!line) return std::nullopt;
    if (line->empty()) break;
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const std::string_view name = line->substr(0, colon);
    const std::string_view value = Trimmed(line->substr(colon + 1));
    if (!IsPlainName(name) || IsOfConnection(name)) return std::nullopt;
    if (name.size() == kLength.size() && absl::EqualsIgnoreCase(ToAbsl(name), ToAbsl(kLength))) {
      constexpr size_t kMostDigits = 18;  // far below the overflow of 64 bits
      if (result.head.content_length || value.empty() || value.size() > kMostDigits) return std::nullopt;
      uint64_t length = 0;
      const char* const end = value.data() + value.size();
      const auto [stopped, wrong] = std::from_chars(value.data(), end, length);
      if (wrong != std::errc() || stopped != end) return std::nullopt;
      result.head.content_length = length;
    }
    result.head.headers.Add(name, value);
  }
  if (!rest.empty() || !result.head.content_length) return std::nullopt;
  result.framing = HttpBodyFraming::kLength;
  result.keep_alive = true;
  return result;
}
constexpr size_t kMaxChunkOverheadBytes = 16 * 1024;
constexpr int kMaxChunkSizeDigits = 15;  // far below the overflow of 64 bits

}  // namespace

size_t FindHttpHeadEnd(std::string_view bytes, size_t searched) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t from = searched < kEnd.size() ? 0 : searched - (kEnd.size() - 1);
  const size_t at = bytes.find(kEnd, from);
  return at == std::string_view::npos ? 0 : at + kEnd.size();
}

absl::StatusOr<ParsedResponse> ParseHttpResponseHead(std::string_view head, bool to_head) {
  if (!to_head && head.size() <= kMaxHttpHeadBytes) {
    if (std::optional<ParsedResponse> usual = ParseUsualHead(head)) return *std::move(usual);
  }
  HeadParser parser;
  parser.headers.Reserve(kUsualFields, head.size());
  RETURN_IF_ERROR(Parse(parser, head));
  ParsedResponse result;
  result.head.status = parser.status;
  result.head.reason = std::move(parser.reason);
  result.head.headers = std::move(parser.headers);
  if (const auto length = parser.content_length()) result.head.content_length = *length;
  result.keep_alive = parser.keep_alive();
  const int status = parser.status;
  if (status < 100 || status > 599) return absl::InvalidArgumentError(fmt::format("malformed HTTP status {}", status));
  if (to_head || status < 200 || status == 204 || status == 304) {
    result.framing = HttpBodyFraming::kNone;
  } else if (parser.chunked()) {
    result.framing = HttpBodyFraming::kChunked;
  } else if (result.head.content_length) {
    result.framing = HttpBodyFraming::kLength;
  } else {
    result.framing = HttpBodyFraming::kUntilClose;
    result.keep_alive = false;
  }
  // A coding that does not end in "chunked" leaves the end of the body to the connection, whatever the length says.
  if (const auto coding = result.head.headers.Find("transfer-encoding"); coding && !parser.chunked()) {
    return absl::InvalidArgumentError(fmt::format("unsupported Transfer-Encoding \"{}\"", *coding));
  }
  return result;
}

absl::StatusOr<HttpChunkDecoder::Piece> HttpChunkDecoder::Next(std::string_view input) {
  Piece piece;
  while (piece.consumed < input.size() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const size_t take = std::min<uint64_t>(left_, input.size() - piece.consumed);
      piece.data = input.substr(piece.consumed, take);
      piece.consumed += take;
      left_ -= take;
      if (left_ == 0) state_ = State::kDataCr;
      return piece;
    }
    RETURN_IF_ERROR(Step(input[piece.consumed]));
    ++piece.consumed;
  }
  return piece;
}

absl::Status HttpChunkDecoder::Step(char c) {
  const auto broken = [] { return absl::InvalidArgumentError("malformed chunked body"); };
  const auto skip = [this] {
    return ++overhead_ > kMaxChunkOverheadBytes
               ? absl::InvalidArgumentError("chunk extensions or trailers are too long")
               : absl::OkStatus();
  };
  switch (state_) {
    case State::kSize:
      if (const int digit = HexValue(c); digit >= 0) {
        if (++digits_ > kMaxChunkSizeDigits) return broken();
        left_ = left_ * 16 + static_cast<uint64_t>(digit);
        return absl::OkStatus();
      }
      if (digits_ == 0) return broken();
      if (c == '\r') {
        state_ = State::kSizeEnd;
      } else if (c == ';' || c == ' ' || c == '\t') {
        state_ = State::kExtension;
      } else {
        return broken();
      }
      return absl::OkStatus();
    case State::kExtension:
      if (c == '\n') return broken();
      if (c == '\r') state_ = State::kSizeEnd;
      return skip();
    case State::kSizeEnd:
      if (c != '\n') return broken();
      state_ = left_ > 0 ? State::kData : State::kTrailerStart;
      digits_ = 0;
      return absl::OkStatus();
    case State::kDataCr:
      if (c != '\r') return broken();
      state_ = State::kDataLf;
      return absl::OkStatus();
    case State::kDataLf:
      if (c != '\n') return broken();
      state_ = State::kSize;
      return absl::OkStatus();
    case State::kTrailerStart:
      state_ = c == '\r' ? State::kLastLf : State::kTrailer;
      return c == '\n' ? broken() : skip();
    case State::kTrailer:
      if (c == '\n') return broken();
      if (c == '\r') state_ = State::kTrailerLf;
      return skip();
    case State::kTrailerLf:
      if (c != '\n') return broken();
      state_ = State::kTrailerStart;
      return absl::OkStatus();
    case State::kLastLf:
      if (c != '\n') return broken();
      state_ = State::kDone;
      return absl::OkStatus();
    case State::kData:
    case State::kDone:
      break;
  }
  return broken();
}

}  // namespace millrace
