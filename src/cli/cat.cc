#include "cli/cat.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/buffer.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/expand.h"
#include "cli/usage.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/pieces.h"
#include "store/stores.h"
#include "store/whole_check.h"

namespace millrace::cli {

namespace {

struct CatFlags {
  std::string uri;
  std::string range;
};

struct Piece {
  Buffer buffer;
  size_t index = 0;
  uint64_t length = 0;
  Completion<absl::StatusOr<GetResult>> done;
};

// Reads in flight, in order. The buffers must outlive them, so its end cancels and waits.
class Window {
 public:
  ~Window() {
    stop_.request_stop();
    while (!pieces_.empty()) (void)TakeFirst();
  }

  void Start(ObjectStore& store, const std::string& key, GetOptions options, size_t index, Buffer buffer) {
    Piece& piece = pieces_.emplace_back();
    piece.buffer = std::move(buffer);
    piece.index = index;
    piece.length = options.range.length;
    options.stop = stop_.get_token();
    store.Get(key, piece.buffer.span().first(piece.length), std::move(options), piece.done.Callback());
  }

  // Waits for the first piece and takes it out.
  std::pair<absl::Status, Piece> TakeFirst() {
    absl::Status status = pieces_.front().done.Wait().status();
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return {std::move(status), std::move(piece)};
  }

  size_t size() const { return pieces_.size(); }

 private:
  std::stop_source stop_;
  std::deque<Piece> pieces_;
};

// Reads a range of an object and hands it to `sink` in order, by pieces, several of which are in flight. The object is
// pinned by its ETag, and a whole one checked against the store's checksum, if it keeps one, at the end: what was
// written before cannot be taken back, so that damage is an error.
absl::Status StreamObject(ObjectStore& store, ObjectInfo object, ByteRange range,
                          absl::FunctionRef<absl::Status(ByteSpan)> sink) {
  if (range.length > kPieceBytes) {
    ASSIGN_OR_RETURN(object, LearnBlocking(store, std::move(object)));
  }
  const Pieces pieces(object.size, object.part_bytes);
  const bool whole = range.length == object.size;
  WholeCheck check(store.Uri(object.key), object, pieces);
  Window window;
  uint64_t next = range.offset;
  const auto start = [&](Buffer buffer) {
    const size_t index = pieces.IndexOf(next);
    const ByteRange piece = pieces.At(index);
    GetOptions options;
    options.range = {next, std::min(piece.end(), range.end()) - next};
    options.if_match = object.etag;
    options.whole = options.range.length == object.size;
    options.part = options.range == piece && pieces.IsPart(index);
    next = options.range.end();
    window.Start(store, object.key, std::move(options), index, std::move(buffer));
  };
  while (window.size() < PiecesInFlight(pieces) && next < range.end())
    start(Buffer(std::min(pieces.largest(), range.length)));
  while (window.size() > 0) {
    if (Interrupted()) return absl::CancelledError(fmt::format("{}: interrupted", store.Uri(object.key)));
    auto [status, piece] = window.TakeFirst();
    RETURN_IF_ERROR(status);
    const ByteSpan bytes = piece.buffer.span().first(piece.length);
    if (whole) check.Add(piece.index, bytes);
    RETURN_IF_ERROR(sink(bytes));
    if (next < range.end()) start(std::move(piece.buffer));
  }
  return whole && pieces.count() > 1 ? check.Finish() : absl::OkStatus();
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "a-b" (both included), "a-" or "-n" (the last n bytes), as HTTP has them: what lies beyond the end is cut off.
absl::StatusOr<ByteRange> ParseRange(std::string_view text, const std::string& uri, uint64_t size) {
  const size_t dash = text.find('-');
  const std::string_view left = text.substr(0, dash);
  const std::string_view right = dash == text.npos ? std::string_view() : text.substr(dash + 1);
  const std::optional<uint64_t> first = ParseNumber(left);
  const std::optional<uint64_t> last = ParseNumber(right);
  const bool valid = dash != text.npos && (first || left.empty()) && (last || right.empty()) && (first || last) &&
                     (!first || !last || *first <= *last);
  if (!valid) {
    return AsUsage(absl::InvalidArgumentError(fmt::format(
        "--range '{}' is not a range; write 0-99 for the first 100 bytes, 100- for what follows, -100 for the end",
        text)));
  }
  if (!first) return ByteRange{size - std::min(size, *last), std::min(size, *last)};
  if (*first >= size)
    return absl::OutOfRangeError(fmt::format("{}: has {} bytes; --range {} lies beyond its end", uri, size, text));
  const uint64_t end = last ? std::min(*last, size - 1) + 1 : size;
  return ByteRange{*first, end - *first};
}

absl::Status WriteObject(ObjectStore& store, const ObjectInfo& object, const std::string& range_text) {
  ByteRange range{0, object.size};
  if (!range_text.empty()) {
    ASSIGN_OR_RETURN(range, ParseRange(range_text, store.Uri(object.key), object.size));
  }
  return StreamObject(store, object, range, [](ByteSpan bytes) { return WriteStdout(AsText(bytes)); });
}

}  // namespace

absl::Status WriteObjects(const std::string& uri, const std::string& range) {
  RETURN_IF_ERROR(CheckObjectUri(uri));
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const std::optional<Pattern> pattern, OpenPattern(stores, uri, Named::kObject));
  if (pattern) {
    return ExpandObjects(*pattern, /*recursive=*/false,
                         [&](const ObjectInfo& object) { return WriteObject(*pattern->store, object, range); });
  }
  ASSIGN_OR_RETURN(const Location location, stores.OpenObject(uri));
  ASSIGN_OR_RETURN(const ObjectInfo object, FindOneObject(location));
  return WriteObject(*location.store, object, range);
}

void AddCat(CLI::App& app, Action* run) {
  CLI::App* cat = app.add_subcommand("cat", "Write an object, or a range of it, to standard output");
  auto flags = std::make_shared<CatFlags>();
  cat->add_option("uri", flags->uri, "The object; or a pattern with * ** ? [a-z], for all that match, in order")
      ->required();
  cat->add_option("--range", flags->range, "Bytes a-b (both included), a- or -n (the last n)");
  cat->footer(
      "Examples:\n"
      "  millrace cat s3://bucket/train/shard-000000.tar | tar t\n"
      "  millrace cat s3://bucket/log.txt --range=-1000\n"
      "  millrace cat 's3://bucket/logs/2026-*.txt'\n"
      "  millrace cat data/image.jpg --range 0-15 | xxd");
  cat->callback([flags, run] {
    *run = [flags] {
      const absl::Status status = WriteObjects(flags->uri, flags->range);
      return status.ok() ? 0 : Fail("cat", HintAtS3(status, {flags->uri}));
    };
  });
}

}  // namespace millrace::cli
