#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "dataset/index_writer.h"
#include "shard/token_format.h"

namespace millrace {

class FolderJoin;

/// Returns true if an object of an older index is the same as one of now, which has the same key and size.
using SameVersion = std::function<bool(const IndexedObject& then, const IndexedObject& now)>;

/// Represents the bytes that are read for an index. For raw objects, they come in addition to the listing. For shards,
/// they come in addition to the notes of other programs.
struct RawReads {
  bool all = false;      // all bytes, so that each sample has a CRC
  bool classes = false;  // files that hold classes (RawSample::class_of); all of a shard whose samples have classes
};

/// Returns true if an index knows of all its samples what these reads tell.
bool TellsAll(const Index& index, RawReads reads);

/// Finds the entries of unchanged objects in older indexes of a data set, or of parts of it. Not thread-safe.
class IndexReuse {
 public:
  /// Represents an object of an older index.
  struct Known {
    size_t index = 0;  // among `olds`
    uint32_t object = 0;
  };

  /// Each of `olds` TellsAll() and was verified; they must live as long as this object. `tokens` says how plain arrays
  /// are cut now; nullopt for all other data. If the arrays were cut in another way, none of them is found. If `same`
  /// is null, equal ETags are the criterion. Raw objects are found if an index has all that `reads` would give. `join`
  /// is that of the data set, or null.
  IndexReuse(const std::vector<const Index*>& olds, const std::optional<TokenArrays>& tokens, RawReads reads = {},
             SameVersion same = nullptr, const FolderJoin* join = nullptr);

  /// Finds an object of a data set of that kind: in the first older index that has it with the same size and version,
  /// and whole. Objects come in ascending order of keys. A pair of token files can be used only if both are found.
  /// DataLoss (an older index).
  absl::StatusOr<std::optional<Known>> Find(DataKind kind, const IndexedObject& object);

  /// Adds the samples of an object. From call to call, objects come in ascending order. Errors are those of
  /// IndexWriter; DataLoss (the older index).
  absl::Status AddSamples(Known known, IndexWriter* writer);

  /// Returns the CRC32C of all of a raw object, which is one sample, if the older index has it. DataLoss as above.
  absl::StatusOr<std::optional<uint32_t>> CrcOf(Known known);

  /// The type of all numbers of plain arrays, if they can be found; nullopt for all other data.
  std::optional<NumberType> tokens_type() const { return tokens_type_; }

 private:
  struct Old {
    const Index* index = nullptr;
    // Objects before next_number precede all objects that will still be asked for.
    uint32_t next_number = 0;
    std::optional<IndexedObject> next = std::nullopt;  // of that number, when it was looked up
    uint64_t found_block = 0;                          // for Index::ScanObject, of what is found
    uint64_t block = 0;                                // for Index::ScanObject, of what is added
  };

  void LearnCut(const Index& old, const std::optional<TokenArrays>& tokens);
  bool MayFind(const IndexedObject& object) const;
  absl::StatusOr<bool> FindIn(Old* old, const IndexedObject& object) const;
  absl::StatusOr<bool> KnowsEnough(Old* old) const;

  std::vector<Old> olds_;
  const RawReads reads_;
  const SameVersion same_;
  const FolderJoin* const join_;
  bool cut_alike_ = true;                  // the plain arrays
  bool type_given_ = false;                // of plain arrays, by the user
  std::optional<NumberType> tokens_type_;  // of plain arrays
};

}  // namespace millrace
