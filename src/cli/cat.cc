#include "cli/cat.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/number.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/usage.h"
#include "store/stores.h"
#include "transfer/find_object.h"
#include "transfer/key_pattern.h"
#include "transfer/object_reader.h"

namespace millrace::cli {

namespace {

// This is the number of pieces of one copy (store/pieces.h). More of them cost a fifth more CPU time if 1 GiB comes
// over a fast network.
constexpr uint64_t kCatPieces = 8;

struct CatFlags {
  std::vector<std::string> uris;
  std::string range;
};

// "a-b" (both included), "a-" or "-n" (the last n bytes), as HTTP has them: what lies beyond the end is cut off.
absl::StatusOr<ByteRange> ParseRange(std::string_view text, const std::string& uri, uint64_t size) {
  const size_t dash = text.find('-');
  const std::string_view left = text.substr(0, dash);
  const std::string_view right = dash == text.npos ? std::string_view() : text.substr(dash + 1);
  const std::optional<uint64_t> first = ParseNumber<uint64_t>(left);
  const std::optional<uint64_t> last = ParseNumber<uint64_t>(right);
  const bool valid = dash != text.npos && (first || left.empty()) && (last || right.empty()) && (first || last) &&
                     (!first || !last || *first <= *last);
  if (!valid) {
    return UsageError(
        "--range '{}' is not a range; write 0-99 for the first 100 bytes, 100- for what follows, -100 for the end",
        text);
  }
  if (!first) return ByteRange{size - std::min(size, *last), std::min(size, *last)};
  if (*first >= size)
    return absl::OutOfRangeError(fmt::format("{}: has {} bytes; --range {} lies beyond its end", uri, size, text));
  const uint64_t end = last ? std::min(*last, size - 1) + 1 : size;
  return ByteRange{*first, end - *first};
}

absl::Status WriteObject(ObjectStore& store, MemoryBudget& memory, const ObjectInfo& object,
                         const std::string& range_text) {
  ByteRange range{0, object.size};
  if (!range_text.empty()) {
    ASSIGN_OR_RETURN(range, ParseRange(range_text, store.Uri(object.key), object.size));
  }
  // Bytes that were written before cannot be taken back, so that damage is an error.
  return ReadPieces(
      store, memory, {.object = object, .range = range}, {},
      [&](const ObjectReader::Piece& piece) { return WriteStdout(AsText(piece.bytes)); }, kCatPieces);
}

absl::Status WriteUri(Runtime& runtime, Stores& stores, const std::string& uri, const std::string& range) {
  ASSIGN_OR_RETURN(const std::optional<Pattern> pattern, OpenPattern(stores, uri, Named::kObject));
  if (pattern) {
    return ExpandObjects(*pattern, /*recursive=*/false, [&](const ObjectInfo& object) {
      return WriteObject(*pattern->store, runtime.memory(), object, range);
    });
  }
  ASSIGN_OR_RETURN(const Location location, stores.OpenObject(uri));
  ASSIGN_OR_RETURN(const ObjectInfo object, FindOneObject(location));
  return WriteObject(*location.store, runtime.memory(), object, range);
}

}  // namespace

absl::Status WriteObjects(const std::vector<std::string>& uris, const std::string& range) {
  for (const std::string& uri : uris) RETURN_IF_ERROR(CheckObjectUri(uri));
  Runtime runtime;
  Stores stores(runtime);
  for (const std::string& uri : uris) RETURN_IF_ERROR(WriteUri(runtime, stores, uri, range));
  return absl::OkStatus();
}

void AddCat(Command app) {
  const Command cat = app.AddCommand("cat", "Write objects, or a range of each, to standard output");
  auto flags = std::make_shared<CatFlags>();
  cat.Add("uri", &flags->uris, "Objects, one after the other; a pattern with * ** ? [a-z] stands for all that match")
      .Required();
  cat.Add("--range", &flags->range, "Bytes a-b (both included), a- or -n (the last n)");
  cat.Footer(
      "Examples:\n"
      "  millrace cat s3://bucket/train/shard-000000.tar | tar t\n"
      "  millrace cat s3://bucket/log.txt --range=-1000\n"
      "  millrace cat s3://bucket/part-1.bin s3://bucket/part-2.bin > whole.bin\n"
      "  millrace cat 's3://bucket/logs/2026-*.txt'\n"
      "  millrace cat data/image.jpg --range 0-15 | xxd");
  cat.Run([flags] { return ExitStatus("cat", HintAtS3(WriteObjects(flags->uris, flags->range), flags->uris)); });
}

}  // namespace millrace::cli
