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

/// Whether an object of an older index is the same as one of now, which has the same key and size.
using SameVersion = std::function<bool(const IndexedObject& then, const IndexedObject& now)>;

/// Which of the bytes of raw objects an index is made of, besides their listing; and of shards, besides what other
/// programs have noted of them.
struct RawReads {
  bool all = false;      // all bytes, so that each sample has a CRC
  bool classes = false;  // files that hold classes (RawSample::class_of); all of a shard whose samples have classes
};

/// True if an index knows of all its samples what these reads tell.
bool TellsAll(const Index& index, RawReads reads);

/// What older indexes of a data set, or of parts of it, know of those objects that have not changed since. Not
/// thread-safe.
class IndexReuse {
 public:
  /// An object of an older index.
  struct Known {
    size_t index = 0;  // among `olds`
    uint32_t object = 0;
  };

  /// Each of `olds` TellsAll() and was verified; they must live as long. `tokens`: how plain arrays are cut now, which
  /// must be how they were cut; else nothing of them is found. None for all else. `same`: null for that the ETags are
  /// equal. Raw objects are found if an index knows of them what `reads` would tell. `join`: of the data set, or null.
  IndexReuse(const std::vector<const Index*>& olds, const std::optional<TokenArrays>& tokens, RawReads reads = {},
             SameVersion same = nullptr, const FolderJoin* join = nullptr);

  /// An object of a data set of that kind in the first older index that has it with the same size and version, and
  /// whole. Objects come in ascending order of keys. Of a pair of token files only both together are of use. DataLoss
  /// (an older index).
  absl::StatusOr<std::optional<Known>> Find(DataKind kind, const IndexedObject& object);

  /// Adds the samples of an object, of which there are later ones from call to call. Errors are those of IndexWriter;
  /// DataLoss (the older index).
  absl::Status AddSamples(Known known, IndexWriter* writer);

  /// The CRC32C of all of a raw object, which is one sample, if the older index has it. DataLoss as above.
  absl::StatusOr<std::optional<uint32_t>> CrcOf(Known known);

  /// Of plain arrays that can be found: the type of all their numbers. None for all else.
  std::optional<NumberType> tokens_type() const { return tokens_type_; }

 private:
  struct Old {
    const Index* index = nullptr;
    // The objects before next_number come before all that is still asked for.
    uint32_t next_number = 0;
    std::optional<IndexedObject> next = std::nullopt;  // of that number, when it was looked up
    uint64_t found_block = 0;                          // for Index::ScanObject, of what is found
    uint64_t block = 0;                                // likewise, of what is added
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
