#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// These functions find the kinds of data sets, and which objects belong to which, by their names.

namespace millrace {

/// The numbers are stored in index files.
enum class DataKind : uint8_t { kRawObjects = 0, kTar = 1, kTfRecord = 2, kRecordIo = 3, kMds = 4, kTokens = 5 };
inline constexpr DataKind kLastDataKind = DataKind::kTokens;

/// Returns one word, for machines: "raw", "tar", "tfrecord", "recordio", "mds", "tokens".
std::string_view KindName(DataKind kind);

/// Returns the end of the names of shards of that kind: ".tar", ".tfrecord", ".rec", ".mds"; "" for raw objects and
/// token files, which are read only.
std::string_view ShardSuffix(DataKind kind);

/// Returns the plural for people: "raw objects", "tar shards", "TFRecord shards" and so on.
std::string_view KindTitle(DataKind kind);

/// Returns the singular: "raw object", "tar shard" and so on.
std::string_view ObjectTitle(DataKind kind);

/// Returns the kind of a shard by its name, in any case:
///   - *.tar; *.rec; *.mds;
///   - *.tfrecord(s), .tfrec, .tfr, .record, these (or no dot at all) with -00000-of-00064 after it;
///   - .tfrecord(s) with .0 after it.
/// Returns nullopt for others; names of token files do not show their kind.
std::optional<DataKind> ShardKind(std::string_view key);

/// Returns "train.tfrecords" of "train.tfrecords.0"; all of a name that does not end so.
std::string_view WithoutTfRecordNumber(std::string_view name);

/// Returns the name without the ending of a compression (.gz), if the rest is a shard's; "x" of "x.tgz" and the like;
/// else "".
std::string_view CompressedShard(std::string_view key);

/// The columns of such files become samples by `millrace pack` alone.
inline constexpr std::string_view kParquetSuffix = ".parquet";

/// Returns whether it is text about a data set, by its name: README*, LICENSE* and the like, and dataset_infos.json.
/// Such an object is passed over if there is anything else.
bool IsDocument(std::string_view key);

/// Returns whether a desktop has put it there: Thumbs.db, desktop.ini and the like. It is never a sample.
bool IsDesktopFile(std::string_view key);

/// Returns true if a program that writes or keeps data has put it there for itself, by its name or that of a folder
/// above it. Such names are _temporary/, _SUCCESS and part-00000.tfrecord.crc of Hadoop and Spark, beam-temp-*/ and
/// 1.0.0.incomplete*/ of TFDS. Others are __pycache__/, __MACOSX/ and @eaDir/. Such a file is never a sample.
bool IsToolFile(std::string_view key);

/// Returns true if its name is that of a download which a program has not finished: 1.jpg.crdownload, 1.jpg.part. A
/// name such as 1.part, without the name of an image in front, is that of a sample.
bool IsPartOfDownload(std::string_view key);

/// Returns the advice for a file of many samples that cannot be read singly, by its name: Parquet, HDF5, LMDB, Arrow
/// and others; "" for other files. It completes "FILE: ...".
std::string_view ForeignFileAdvice(std::string_view key);

/// Returns how a field that is not an image is read in Python, by the end of its name: video, audio, arrays, texts,
/// pickles; "" for others. It completes "the field 'mp4': ...".
std::string FieldAdvice(std::string_view field);

/// Returns true if an object of that name may be stored beside shards of that kind, and holds no samples then. Beside
/// shards, that is anything but a shard. Beside token files, it is the caches of Megatron and side files
/// (side_files.h). Among raw objects the object would be a sample.
bool IsCompanion(DataKind kind, std::string_view key);
bool IsCompanion(std::string_view key);  // of any kind

}  // namespace millrace
