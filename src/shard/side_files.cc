#include "shard/side_files.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "shard/data_kind.h"

namespace millrace {

namespace {

// Returns true if `end` is an ending that programs that split files append to the names of the pieces.
bool IsPieceNumber(std::string_view end) {
  if (!end.starts_with('.')) return false;
  end.remove_prefix(1);
  const bool says_part = end.starts_with("part") && end.size() > 4;
  if (says_part) {
    end.remove_prefix(4);
    if (end.starts_with('-') || end.starts_with('_') || end.starts_with('.')) end.remove_prefix(1);
  }
  const auto all_in = [&](char low, char high) {
    return std::all_of(end.begin(), end.end(), [&](char c) { return c >= low && c <= high; });
  };
  // "aa" is the first piece; "sh" or "md" is the ending of another file.
  if (end.size() == 2 && all_in('a', 'z')) return end.front() == 'a';
  return end.size() >= (says_part ? 1 : 2) && end.size() <= 5 && all_in('0', '9');
}

}  // namespace

std::string_view MisnamedShardAdvice(std::string_view key) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(key.substr(key.rfind('/') + 1)));
  const std::string_view name = lower;
  const auto is_tar = [](std::string_view whole) {
    return ShardKind(whole) == DataKind::kTar || !CompressedShard(whole).empty();
  };
  if (const size_t query = name.find('?'); query != name.npos) {
    const std::string_view whole = name.substr(0, query);
    if (!ShardKind(whole) && CompressedShard(whole).empty()) return {};
    return "a shard whose name ends with the query of a URL, as wget leaves it; remove that from the name";
  }
  const size_t dot = name.rfind('.');
  if (dot == name.npos || dot == 0 || is_tar(name)) return {};
  const std::string_view end = name.substr(dot);
  if (end.size() == 2 && end[1] >= '1' && end[1] <= '9' && is_tar(name.substr(0, dot)))
    return "a shard whose name ends with a number, as wget leaves it beside an earlier one; rename it or remove it";
  for (const size_t from : {dot, name.rfind('.', dot - 1)}) {
    if (from != name.npos && IsPieceNumber(name.substr(from)) && is_tar(name.substr(0, from)))
      return "a piece of a shard that was split; join the pieces with `cat`, or make the data again as smaller shards";
  }
  return {};
}

namespace {

// Returns true for "00000.tar.temp4711": a download of webdataset, with the number of its process, that was
// interrupted.
bool EndsAsTemporary(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && name.substr(0, last + 1).ends_with(".temp");
}

}  // namespace

bool IsSideFile(std::string_view key) {
  constexpr std::string_view kEndings[] = {
      ".json", ".jsonl", ".csv",    ".tsv",    ".txt",   ".log", ".md",   ".yaml", ".yml",       ".xml",  ".html",
      ".md5",  ".sha1",  ".sha256", ".sha512", ".crc",   ".sum", ".part", ".tmp",  ".partial",   ".lock", ".pdf",
      ".pkl",  ".bak",   ".done",   ".err",    ".aria2", ".sh",  ".py",   ".toml", ".crdownload"};
  const std::string name = absl::AsciiStrToLower(ToAbsl(key.substr(key.rfind('/') + 1)));
  return EndsAsTemporary(name) || std::any_of(std::begin(kEndings), std::end(kEndings),
                                              [&](std::string_view end) { return name.ends_with(end); });
}

bool MayBeSample(std::string_view key) {
  constexpr std::string_view kEndings[] = {
      // of programs that train
      ".pt", ".pth", ".ckpt", ".onnx", ".safetensors", ".ipynb", ".pyc", ".so", ".out", ".prof",
      // indexes and checksums of other programs
      ".idx", ".index", ".tfindex", ".dvc", ".sig", ".asc", ".md5sum", ".sha1sum", ".sha256sum", ".sha512sum",
      ".torrent",
      // tables and archives
      ".parquet", ".feather", ".arrow", ".orc", ".avro", ".db", ".sqlite", ".zip", ".gz", ".zst", ".xz", ".bz2", ".7z",
      // texts, settings and shortcuts
      ".rst", ".tex", ".bib", ".ini", ".cfg", ".conf", ".lnk", ".url", ".htm", ".css", ".js",
      // what is old or not ready
      ".old", ".orig", ".incomplete", ".download", ".!ut", ".!qb"};
  const std::string name = absl::AsciiStrToLower(ToAbsl(key.substr(key.rfind('/') + 1)));
  if (IsSideFile(key) || name.find(".tfevents.") != name.npos || !MisnamedShardAdvice(key).empty()) return false;
  return std::none_of(std::begin(kEndings), std::end(kEndings),
                      [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace millrace
