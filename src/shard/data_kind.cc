#include "shard/data_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "shard/mds_format.h"
#include "shard/sample_name.h"
#include "shard/side_files.h"

namespace millrace {

namespace {

std::string_view Basename(std::string_view key) {
  const size_t slash = key.rfind('/');
  return slash == std::string_view::npos ? key : key.substr(slash + 1);
}

bool IsNumber(std::string_view text) {
  return text.size() >= 5 && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Turns "train-00000-of-00064" into "train"; returns "" when the name does not end so.
std::string_view WithoutShardNumber(std::string_view name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || !IsNumber(name.substr(of + 4))) return {};
  const std::string_view front = name.substr(0, of);
  const size_t dash = front.rfind('-');
  if (dash == std::string_view::npos || !IsNumber(front.substr(dash + 1))) return {};
  return front.substr(0, dash);
}

bool IsToolFolder(std::string_view folder) {
  constexpr std::string_view kFolders[] = {"_temporary",
                                           "_delta_log",
                                           "_spark_metadata",
                                           "_symlink_format_manifest",
                                           "__magic",
                                           "__pycache__",
                                           "__MACOSX",
                                           "@eaDir",
                                           "#recycle",
                                           "$RECYCLE.BIN",
                                           "System Volume Information",
                                           "lost+found"};
  return folder.starts_with("__magic_job-") || folder.starts_with("_distcp_logs") ||
         folder.starts_with("_temporary-") || folder.starts_with("beam-temp-") ||
         folder.find(".incomplete") != std::string_view::npos ||
         std::find(std::begin(kFolders), std::end(kFolders), folder) != std::end(kFolders);
}

bool EndsWith(std::string_view name, std::string_view end) {
  return absl::EndsWithIgnoreCase(ToAbsl(name), ToAbsl(end));
}

template <size_t N>
bool EndsWithOneOf(std::string_view name, const std::string_view (&ends)[N]) {
  return std::any_of(std::begin(ends), std::end(ends), [&](std::string_view end) { return EndsWith(name, end); });
}

// The endings include those that Kaggle (.tfrec) and the Object Detection API (.record) use.
bool EndsAsTfRecord(std::string_view name) {
  constexpr std::string_view kEndings[] = {".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".record"};
  return EndsWithOneOf(name, kEndings);
}

struct KindWords {
  std::string_view name;
  std::string_view suffix;  // of shards
  std::string_view title;
};

KindWords WordsOf(DataKind kind) {
  switch (kind) {
    case DataKind::kTar:
      return {"tar", ".tar", "tar shards"};
    case DataKind::kTfRecord:
      return {"tfrecord", ".tfrecord", "TFRecord shards"};
    case DataKind::kRecordIo:
      return {"recordio", ".rec", "RecordIO shards"};
    case DataKind::kMds:
      return {"mds", ".mds", "MDS shards"};
    case DataKind::kTokens:
      return {"tokens", "", "token files"};
    case DataKind::kRawObjects:
      break;
  }
  return {"raw", "", "raw objects"};
}

}  // namespace

std::string_view KindName(DataKind kind) {
  return WordsOf(kind).name;
}

std::string_view ShardSuffix(DataKind kind) {
  return WordsOf(kind).suffix;
}

std::string_view KindTitle(DataKind kind) {
  return WordsOf(kind).title;
}

std::string_view ObjectTitle(DataKind kind) {
  const std::string_view many = KindTitle(kind);
  return many.substr(0, many.size() - 1);
}

std::string_view WithoutTfRecordNumber(std::string_view name) {
  constexpr std::string_view kNumbered[] = {".tfrecord.", ".tfrecords."};
  const std::string_view front = name.substr(0, name.find_last_not_of("0123456789") + 1);
  return front.size() < name.size() && EndsWithOneOf(front, kNumbered) ? front.substr(0, front.size() - 1) : name;
}

std::optional<DataKind> ShardKind(std::string_view key) {
  const std::string_view name = WithoutTfRecordNumber(Basename(key));
  if (EndsWith(name, ".tar")) return DataKind::kTar;
  if (EndsWith(name, ".rec")) return DataKind::kRecordIo;
  if (EndsWith(name, ".mds")) return DataKind::kMds;
  if (EndsAsTfRecord(name)) return DataKind::kTfRecord;
  const std::string_view front = WithoutShardNumber(name);
  if (EndsAsTfRecord(front) || (!front.empty() && front.find('.') == std::string_view::npos)) {
    return DataKind::kTfRecord;
  }
  return std::nullopt;
}

std::string_view CompressedShard(std::string_view key) {
  constexpr std::string_view kTars[] = {".tgz", ".tzst", ".txz", ".tbz2", ".tbz", ".tlz"};
  constexpr std::string_view kEndings[] = {".gz",     ".zst", ".zstd", ".xz",   ".bz2", ".br", ".lz4",
                                           ".snappy", ".zz",  ".lz",   ".lzma", ".lzo", ".z",  ".zip"};
  for (const std::string_view end : kTars) {
    if (EndsWith(key, end)) return key.substr(0, key.size() - end.size());
  }
  for (const std::string_view end : kEndings) {
    if (!EndsWith(key, end)) continue;
    const std::string_view plain = key.substr(0, key.size() - end.size());
    if (ShardKind(plain)) return plain;
  }
  return {};
}

bool IsDocument(std::string_view key) {
  constexpr std::string_view kStems[] = {"readme", "license", "licence", "copying", "notice", "citation", "changelog"};
  const std::string_view name = Basename(key);
  if (name == "dataset_infos.json") return true;  // of Hugging Face
  const std::string lower = absl::AsciiStrToLower(ToAbsl(name));
  if (IsImageField(lower)) return false;  // an image of a class of that name
  const std::string stem = absl::AsciiStrToLower(ToAbsl(name.substr(0, name.find('.'))));
  return std::find(std::begin(kStems), std::end(kStems), stem) != std::end(kStems);
}

bool IsDesktopFile(std::string_view key) {
  const std::string name = absl::AsciiStrToLower(ToAbsl(Basename(key)));
  return name == "thumbs.db" || name == "ehthumbs.db" || name == "desktop.ini";
}

bool IsPartOfDownload(std::string_view key) {
  constexpr std::string_view kAlways[] = {".crdownload", ".aria2", ".filepart", ".!qb", ".opdownload"};
  constexpr std::string_view kBehindNames[] = {".part", ".partial", ".download", ".tmp"};
  const std::string name = absl::AsciiStrToLower(ToAbsl(Basename(key)));
  const std::string_view whole = name;
  if (std::any_of(std::begin(kAlways), std::end(kAlways), [&](std::string_view end) { return whole.ends_with(end); }))
    return true;
  return std::any_of(std::begin(kBehindNames), std::end(kBehindNames), [&](std::string_view end) {
    if (!whole.ends_with(end)) return false;
    const std::string_view before = whole.substr(0, whole.size() - end.size());
    return before.find('.') != std::string_view::npos && IsImageField(before);
  });
}

bool IsToolFile(std::string_view key) {
  const std::string_view name = Basename(key);
  if (name == "_SUCCESS" || name == "_FAILURE" || name == "_metadata" || name == "_common_metadata" ||
      name.starts_with("_committed_") || name.starts_with("_started_") || name.ends_with("_$folder$") ||
      name.ends_with("._COPYING_")) {
    return true;
  }
  if (name.find(".sync-conflict-") != name.npos) return true;  // Syncthing's copy of what another machine has changed
  if (name.ends_with(".crc") && ShardKind(name.substr(0, name.size() - 4))) return true;
  // By Hadoop's rule, engines keep files below "_NAME/" that are not ready, or none of the data. Raw objects may lie
  // there: the folder is a class.
  const bool shard = ShardKind(key) || !CompressedShard(key).empty() || key.ends_with(kParquetSuffix);
  while (key.size() > name.size()) {
    const std::string_view folder = key.substr(0, key.find('/'));
    if (IsToolFolder(folder) || (shard && folder.starts_with('_'))) return true;
    key.remove_prefix(folder.size() + 1);
  }
  return false;
}

std::string_view ForeignFileAdvice(std::string_view key) {
  if (key.ends_with(kParquetSuffix)) {
    return "a Parquet file; its rows cannot be read singly: let `millrace pack` make shards of all of them";
  }
  struct Advice {
    std::string_view ending;
    std::string_view text;
  };
  constexpr std::string_view kHdf5 =
      "an HDF5 file, which is not read; write its samples as shards with h5py and webdataset.ShardWriter or "
      "streaming.MDSWriter, as docs/formats/shards.md shows";
  constexpr std::string_view kLmdb =
      "an LMDB database, which is not read; write its samples as shards with lmdb and millrace.ShardWriter, as "
      "docs/formats/shards.md shows";
  constexpr std::string_view kArrow =
      "an Arrow file, which is not read; write it as Parquet (datasets: to_parquet(); pyarrow: "
      "pyarrow.parquet.write_table()), and let `millrace pack` make shards";
  constexpr Advice kAdvice[] = {
      {".h5", kHdf5},
      {".hdf5", kHdf5},
      {"/data.mdb", kLmdb},
      {"/lock.mdb", kLmdb},
      {".lmdb", kLmdb},
      {".arrow", kArrow},
      {".feather", kArrow},
      {".avro", "an Avro file, which is not read; write it as Parquet, and let `millrace pack` make shards"},
      {".orc", "an ORC file, which is not read; write it as Parquet, and let `millrace pack` make shards"},
      {".beton", "a file of FFCV, which is not read; make shards of the data that it was made from"},
      {".array_record",
       "an ArrayRecord file, which is not read; write its records with millrace.ShardWriter, as "
       "docs/formats/shards.md shows"},
  };
  // A whole name begins with '/'. ArrayRecord numbers its files after the extension.
  const size_t numbered = key.rfind(".array_record-");
  const std::string below = "/" + std::string(numbered == key.npos ? key : key.substr(0, numbered + 13));
  for (const Advice& advice : kAdvice) {
    if (below.ends_with(advice.ending)) return advice.text;
  }
  return {};
}

std::string FieldAdvice(std::string_view field) {
  struct Advice {
    std::string_view extensions;  // each with a blank before and after it
    std::string_view text;        // a format; its argument is the field
  };
  constexpr std::string_view kMedia =
      "it is not decoded; read its bytes by fields={{'x': millrace.Bytes('{0}')}} and decode them in `transform`, as "
      "examples/video.py does";
  constexpr std::string_view kPickled =
      "read its bytes by fields={{'x': millrace.Bytes('{0}')}} and load them in `transform`, from io.BytesIO";
  constexpr Advice kAdvice[] = {
      {" mp4 mov mkv avi webm m4v mpg mpeg wmv flv ogv wav flac mp3 ogg m4a opus aac ", kMedia},
      {" npy ", "read it by fields={{'x': millrace.Array('{0}')}}"},
      {" npz pt pth pkl pickle safetensors mat msgpack ", kPickled},
      {" txt text ", "read it by fields={{'x': millrace.Text('{0}')}}"},
      {" json ", "read it by fields={{'x': millrace.Json('{0}')}}"},
      {" zip 7z rar gz bz2 xz zst lz4 tgz ", "it is compressed; unpack the files first"},
  };
  const std::string word = " " + absl::AsciiStrToLower(ToAbsl(field.substr(field.rfind('.') + 1))) + " ";
  for (const Advice& advice : kAdvice) {
    if (advice.extensions.find(word) != advice.extensions.npos) return fmt::format(fmt::runtime(advice.text), field);
  }
  return "";
}

bool IsCompanion(DataKind kind, std::string_view key) {
  if (kind == DataKind::kRawObjects) return false;
  if (kind != DataKind::kTokens) return !ShardKind(key) && CompressedShard(key).empty();
  return key.ends_with(".npy") || key.ends_with(".dsc") || IsSideFile(key);  // with the caches of Megatron
}

bool IsCompanion(std::string_view key) {
  return IsCompanion(DataKind::kTar, key);
}

}  // namespace millrace
